"""Kernels over the wire bytes of remote write: counts first, then rows. Both versions, one walk each.

Messages are those of prometheus.WriteRequest (version 1) and io.prometheus.write.v2.Request (version 2). Unknown fields
are skipped, as protobuf requires. A kernel returns the position of the first bad byte, or GOOD. Labels and samples are
copied into the arrays of `ingest.rows.Rows`. A label with an empty value is left out: for Prometheus it is absent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, request_kernel
from tsdb.codec.memory_kernels import as_int64, copy_bytes, load_i64
from tsdb.codec.varint_kernels import get_varint

GOOD = -1
# Indices of `totals`.
SERIES, SAMPLES, HISTOGRAMS, EXEMPLARS, METADATA, SYMBOLS, LABEL_BYTES, STARTS, TOTALS = range(9)
# Wire types of protobuf.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
# Errors of a row.
ROW_GOOD, ROW_NOT_UTF8, ROW_BAD_REFERENCE, ROW_ODD_REFERENCES, ROW_TOO_LONG = range(5)
# Entries of `found`, what one series has so far: the row's error, the span of its metric name, a label name's reference
# plus 1 whose value has not come, and the number of labels.
ERROR, METRIC_START, METRIC_STOP, OPEN_NAME, PAIRS, FOUND = range(6)
SEPARATOR = 0xFF
# Columns of the table of metadata: kind, then the spans of name, help and unit in the data.
KIND, NAME_START, NAME_STOP, HELP_START, HELP_STOP, UNIT_START, UNIT_STOP, METADATA_COLUMNS = range(8)
# Columns of the tables of histograms and of exemplars: the row of their series, and their span in the data.
ROW, START, STOP, SPAN_COLUMNS = range(4)


@helper
def get_byte(data: NDArray[np.uint8], pos: int) -> int:
    """A byte as int64. numba's int() would make it unsigned, and a sum with it a float."""
    return np.int64(data[pos])  # type: ignore[return-value]


@helper
def get_field(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int, int, int]:
    """(number, wire type, start, stop) of the field at `pos`; stop is negative when it is bad or passes `end`."""
    if end - pos > 1 and data[pos] & 0x87 == LENGTH and data[pos] > 7 and data[pos + 1] < 128:
        # The usual field has a tag of one byte and a length of one byte.
        size = get_byte(data, pos + 1)
        number = get_byte(data, pos) >> 3
        return number, LENGTH, pos + 2, (pos + 2 + size if size <= end - pos - 2 else -1)
    tag, pos = get_varint(data, pos, end)
    number = tag >> 3
    wire = tag & 7
    if pos < 0 or number < 1:
        return number, wire, -1, -1
    if wire == LENGTH:
        size, pos = get_varint(data, pos, end)
        if pos < 0 or size < 0 or size > end - pos:
            return number, wire, -1, -1
        return number, wire, pos, pos + size
    stop = pos
    if wire == VARINT:
        _, stop = get_varint(data, pos, end)
    elif wire == FIXED64:
        stop = pos + 8
    elif wire == FIXED32:
        stop = pos + 4
    else:
        stop = -1
    if stop > end:
        stop = -1
    return number, wire, pos, stop


@helper
def count_series(data: NDArray[np.uint8], pos: int, end: int, version: int, totals: NDArray[np.int64]) -> int:
    """Count one TimeSeries. Returns GOOD or the position of the first bad byte."""
    while pos < end:
        number, wire, _, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        if wire == LENGTH:
            if number == 2:
                totals[SAMPLES] += 1
            elif number == (4 if version == 1 else 3):
                totals[HISTOGRAMS] += 1
            elif number == (3 if version == 1 else 4):
                totals[EXEMPLARS] += 1
            elif number == 5 and version == 2:
                totals[METADATA] += 1
        pos = stop
    return GOOD


@request_kernel
def count_kernel(data: NDArray[np.uint8], version: int, totals: NDArray[np.int64]) -> int:
    """totals: int64 (TOTALS,), zeros; LABEL_BYTES stays zero. Returns GOOD or the position of the first bad byte."""
    end = len(data)
    pos = 0
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        if number == (1 if version == 1 else 5):
            if wire != LENGTH:
                return pos
            bad = count_series(data, start, stop, version, totals)
            if bad != GOOD:
                return bad
            totals[SERIES] += 1
        elif number == (3 if version == 1 else 4):
            if wire != LENGTH:
                return pos
            totals[METADATA if version == 1 else SYMBOLS] += 1
        pos = stop
    return GOOD


@helper
def put_part(data: NDArray[np.uint8], start: int, stop: int, labels: NDArray[np.uint8], at: int, separate: int) -> int:
    """Append a name or value, after a separator when `separate` is 1. Returns the new position."""
    size = stop - start
    if at + separate + size <= len(labels):
        if separate:
            labels[at] = np.uint8(SEPARATOR)
        copy_bytes(labels, at + separate, data, start, size)
    return at + separate + size


@helper
def separators(labels: NDArray[np.uint8], begin: int, end: int) -> int:
    """Number of bytes 0xFF. A label that contains one is not UTF-8."""
    found = 0
    for pos in range(begin, end):
        found += labels[pos] == SEPARATOR
    return found


@helper
def is_name(data: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether the span is `__name__`."""
    if stop - start != 8:
        return False
    outer: bool = data[start] == 95 and data[start + 1] == 95 and data[start + 6] == 95 and data[start + 7] == 95
    inner: bool = data[start + 2] == 110 and data[start + 3] == 97 and data[start + 4] == 109 and data[start + 5] == 101
    return outer and inner


@helper
def put_sample(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    version: int,
    ts_ms: NDArray[np.int64],
    bits: NDArray[np.int64],
    start_ms: NDArray[np.int64],
    at: int,
) -> int:
    """Write one Sample, its value as bits, and its start timestamp if it has one. Returns GOOD or the position of the
    first bad byte."""
    value = 0
    ts = 0
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        if number == 1:
            if wire != FIXED64:
                return pos
            value = load_i64(data, start)
        elif number == 2:
            if wire != VARINT:
                return pos
            ts, _ = get_varint(data, start, stop)
        elif number == 3 and version == 2 and wire == VARINT:
            start_ms[at], _ = get_varint(data, start, stop)
        pos = stop
    ts_ms[at] = ts
    bits[at] = value
    return GOOD


@helper
def get_label(data: NDArray[np.uint8], pos: int, end: int, spans: NDArray[np.int64]) -> int:
    """Write the spans of name and value of a Label of version 1. Returns GOOD or the position of the first bad byte."""
    spans[0] = 0
    spans[1] = 0
    spans[2] = 0
    spans[3] = 0
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        if number == 1 or number == 2:
            if wire != LENGTH:
                return pos
            spans[2 * number - 2] = start
            spans[2 * number - 1] = stop
        pos = stop
    return GOOD


@helper
def put_pair(
    data: NDArray[np.uint8],
    name_start: int,
    name_stop: int,
    value_start: int,
    value_stop: int,
    labels: NDArray[np.uint8],
    at: int,
    begin: int,
    row_bytes_max: int,
    found: NDArray[np.int64],
) -> int:
    """Append one label unless its value is empty. Returns the new position. A row with an error gets no more bytes.

    Without that rule two bytes of references would cost the copy of a large symbol.

    """
    if value_start == value_stop or found[ERROR] != ROW_GOOD:
        return at
    if at - begin + name_stop - name_start + value_stop - value_start + 2 > row_bytes_max + 1:
        found[ERROR] = ROW_TOO_LONG
        return at
    at = put_part(data, name_start, name_stop, labels, at, 1 if at > begin else 0)
    at = put_part(data, value_start, value_stop, labels, at, 1)
    found[PAIRS] += 1
    if is_name(data, name_start, name_stop):
        found[METRIC_START] = value_start
        found[METRIC_STOP] = value_stop
    return at


@helper
def put_references(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    symbols: NDArray[np.int64],
    labels: NDArray[np.uint8],
    at: int,
    begin: int,
    row_bytes_max: int,
    found: NDArray[np.int64],
) -> int:
    """Append the labels of packed references. Returns the new position, or -2 - the position of a bad byte."""
    while pos < end:
        reference, after = get_varint(data, pos, end)
        if after < 0:
            return -2 - pos
        pos = after
        if reference < 0 or reference >= len(symbols) // 2:
            found[ERROR] = ROW_BAD_REFERENCE
        elif found[OPEN_NAME] == 0:
            found[OPEN_NAME] = reference + 1
        else:
            name = found[OPEN_NAME] - 1
            found[OPEN_NAME] = 0
            at = put_pair(
                data,
                symbols[2 * name],
                symbols[2 * name + 1],
                symbols[2 * reference],
                symbols[2 * reference + 1],
                labels,
                at,
                begin,
                row_bytes_max,
                found,
            )
    return at


@helper
def put_metadata(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    version: int,
    symbols: NDArray[np.int64],
    metadata: NDArray[np.int64],
    at: int,
) -> int:
    """Write one MetricMetadata or Metadata. Returns GOOD or the position of the first bad byte. A bad reference leaves
    its text empty."""
    metadata[at, :] = 0
    while pos < end:
        number, wire, start, stop = get_field(data, pos, end)
        if stop < 0:
            return pos
        if number == 1 and wire == VARINT:
            metadata[at, KIND], _ = get_varint(data, start, stop)
        elif version == 1 and wire == LENGTH and (number == 2 or number == 4 or number == 5):
            column = NAME_START if number == 2 else HELP_START if number == 4 else UNIT_START
            metadata[at, column] = start
            metadata[at, column + 1] = stop
        elif version == 2 and wire == VARINT and (number == 3 or number == 4):
            reference, _ = get_varint(data, start, stop)
            column = HELP_START if number == 3 else UNIT_START
            if 0 <= reference < len(symbols) // 2:
                metadata[at, column] = symbols[2 * reference]
                metadata[at, column + 1] = symbols[2 * reference + 1]
        pos = stop
    return GOOD


@helper
def same_metadata(metadata: NDArray[np.int64], at: int) -> bool:
    """Whether an entry equals the one before it: series of one family follow each other."""
    different = 0
    for column in range(METADATA_COLUMNS):
        different += metadata[at, column] != metadata[at - 1, column]
    return different == 0


@request_kernel
def rows_kernel(
    data: NDArray[np.uint8],
    version: int,
    symbols: NDArray[np.int64],
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    start_ms: NDArray[np.int64],
    row_errors: NDArray[np.uint8],
    histograms: Array2[np.int64],
    exemplars: Array2[np.int64],
    metadata: Array2[np.int64],
    row_bytes_max: int,
    totals: NDArray[np.int64],
) -> int:
    """Fill the rows of data that `count_kernel` found good. Returns GOOD or the position of the first bad byte.

    symbols: int64 (2 x symbols,), filled here. start_ms: int64 (samples,), zeros; stays 0 where a sample has no start
    timestamp. The other arrays have the counted sizes; label_starts and starts one more. exemplars: may be shorter than
    their number; the later ones are left out. row_bytes_max: the largest size of the labels of one row.
    totals[LABEL_BYTES]: bytes of labels; above len(labels) the labels are cut and all else is whole. totals[METADATA]:
    number of filled entries, without repeated ones. totals[STARTS]: samples with a start timestamp.
    """
    end = len(data)
    pos = 0
    symbol = 0
    while version == 2 and pos < end:
        number, _, start, stop = get_field(data, pos, end)
        if number == 4:
            symbols[symbol] = start
            symbols[symbol + 1] = stop
            symbol += 2
        pos = stop
    row, sample, histogram, exemplar, entry, at, started = 0, 0, 0, 0, 0, 0, 0
    label_starts[0] = 0
    starts[0] = 0
    bits = as_int64(values)
    found = np.zeros(FOUND, np.int64)
    spans = np.zeros(4, np.int64)
    pos = 0
    while pos < end:
        number, _, start, stop = get_field(data, pos, end)
        pos = stop
        if version == 1 and number == 3:
            bad = put_metadata(data, start, stop, version, symbols, metadata, entry)
            if bad != GOOD:
                return bad
            entry += 1
        if number != (1 if version == 1 else 5):
            continue
        found[:] = 0
        begin = at
        has_metadata = False
        inner = start
        while inner < stop:
            number, wire, first, last = get_field(data, inner, stop)
            bad = GOOD
            if number == 1:
                if version == 1:
                    if wire != LENGTH:
                        return inner
                    bad = get_label(data, first, last, spans)
                    if bad != GOOD:
                        return bad
                    at = put_pair(data, spans[0], spans[1], spans[2], spans[3], labels, at, begin, row_bytes_max, found)
                elif wire in (LENGTH, VARINT):
                    moved = put_references(data, first, last, symbols, labels, at, begin, row_bytes_max, found)
                    if moved < GOOD:
                        return -2 - moved
                    at = moved
                else:
                    return inner
            elif wire == LENGTH and number == 2:
                bad = put_sample(data, first, last, version, ts_ms, bits, start_ms, sample)
                started += start_ms[sample] != 0
                sample += 1
            elif wire == LENGTH and number == (4 if version == 1 else 3):
                histograms[histogram, ROW] = row
                histograms[histogram, START] = first
                histograms[histogram, STOP] = last
                histogram += 1
            elif wire == LENGTH and number == (3 if version == 1 else 4):
                if exemplar < len(exemplars):
                    exemplars[exemplar, ROW] = row
                    exemplars[exemplar, START] = first
                    exemplars[exemplar, STOP] = last
                    exemplar += 1
            elif wire == LENGTH and number == 5 and version == 2:
                bad = put_metadata(data, first, last, version, symbols, metadata, entry)
                has_metadata = True
            elif number == 2:
                return inner
            if bad != GOOD:
                return bad
            inner = last
        if has_metadata:
            metadata[entry, NAME_START] = found[METRIC_START]
            metadata[entry, NAME_STOP] = found[METRIC_STOP]
            if entry == 0 or not same_metadata(metadata, entry):
                entry += 1
        if found[ERROR] == ROW_GOOD and found[OPEN_NAME] != 0:
            found[ERROR] = ROW_ODD_REFERENCES
        whole = found[ERROR] == ROW_GOOD and at <= len(labels)
        if whole and separators(labels, begin, at) != max(0, 2 * found[PAIRS] - 1):
            found[ERROR] = ROW_NOT_UTF8
        if found[ERROR] != ROW_GOOD:
            at = begin
        row_errors[row] = np.uint8(found[ERROR])
        row += 1
        label_starts[row] = at
        starts[row] = sample
    totals[LABEL_BYTES] = at
    totals[METADATA] = entry
    totals[STARTS] = started
    return GOOD
