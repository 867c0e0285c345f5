"""Arrow: results of queries as a stream of record batches, for callers that ask for it instead of JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.answer import Representation, json_of, shown_annotations
from tsdb.model.details import SampleDetails
from tsdb.promql.evaluate.native.stored import details_of
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text

if TYPE_CHECKING:
    import pyarrow

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 1 << 16  # A batch takes 1.3 MB.
LABEL_COPIES = 4  # Copies of labels: Python's texts, the dictionary, and the first piece that has it.
NO_LABELS = b"{}"

Batch = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64], SampleDetails | None]
"""Schema of the rows: number of the series, time, value, and the histograms among the values."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """The rows of a result. labels: sorted JSON of each series. has_histograms: whether a value may be a native
    histogram. text: the text of a string result, which has no rows."""

    labels: Sequence[bytes]
    batches: Iterator[Batch]
    has_histograms: bool = False
    text: str | None = None

    @property
    def label_bytes(self) -> int:
        """Memory of the labels, in all forms."""
        return LABEL_COPIES * sum(map(len, self.labels))


def arrow_rows(value: Block | Samples | Scalar | Text, times_ms: NDArray[np.int64]) -> ArrowRows:
    """The rows of a result, series by series. times_ms: times of the steps."""
    if isinstance(value, Text):
        return ArrowRows((), iter(()), text=value.value)
    if isinstance(value, Scalar):
        return ArrowRows((NO_LABELS,), iter(((np.zeros(1, np.int32), times_ms[:1], value.values[:1], None),)))
    labels = [json_of(value.labels.row(row)) for row in range(len(value.labels))]
    batches = _samples(value) if isinstance(value, Samples) else _block(value, times_ms)
    return ArrowRows(labels, batches, value.native is not None)


def arrow_answer(kind: str, rows: ArrowRows, warnings: Sequence[str], infos: Sequence[str]) -> Representation:
    """Columns labels (dictionary-encoded), ts_ms, value. Where a value may be a native histogram a column of structs
    follows (tsdb.codec.histogram_rows), and such a value is null. Metadata of the schema: resultType, warnings and
    infos as lists in JSON, and the text of a string."""
    metadata: dict[str, str | bytes] = {
        "resultType": kind,
        "warnings": json_of(shown_annotations("warning", warnings)),
        "infos": json_of(shown_annotations("info", infos)),
    }
    if rows.text is not None:
        metadata["text"] = rows.text.encode(errors="replace")
    return Representation(_pieces(rows, metadata), MEDIA_TYPE)


def _pieces(rows: ArrowRows, metadata: dict[str, str | bytes]) -> Iterator[bytes]:
    # Imported here, so that a process without such requests need not load Arrow.
    import pyarrow

    dictionary = pyarrow.array([one.decode() for one in rows.labels], pyarrow.string())
    columns = {
        "labels": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "ts_ms": pyarrow.int64(),
        "value": pyarrow.float64(),
    }
    if rows.has_histograms:
        from tsdb.codec.histogram_rows import HISTOGRAM

        columns["histogram"] = HISTOGRAM
    schema = pyarrow.schema(columns, metadata)
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in rows.batches:
            writer.write_batch(_record_batch(batch, dictionary, schema))
            yield _taken(sink)
    yield _taken(sink)


def _record_batch(batch: Batch, dictionary: pyarrow.Array, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    codes, ts_ms, values, details = batch
    labels = pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes), dictionary)
    if "histogram" not in schema.names:
        columns = [labels, pyarrow.array(ts_ms), pyarrow.array(values)]
        return pyarrow.RecordBatch.from_arrays(columns, schema=schema)
    from tsdb.codec.histogram_rows import histogram_column

    is_histogram = None if details is None or details.histogram_of is None else details.histogram_of >= 0
    numbers = pyarrow.array(values, mask=is_histogram, from_pandas=False)
    columns = [labels, pyarrow.array(ts_ms), numbers, histogram_column(details, len(values))]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _taken(sink: io.BytesIO) -> bytes:
    made = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return made


def _block(block: Block, times_ms: NDArray[np.int64]) -> Iterator[Batch]:
    series = max(1, BATCH_ROWS // max(1, len(times_ms)))
    for first in range(0, len(block), series):
        present = block.present[first : first + series]
        rows, steps = np.nonzero(present)
        of = None if block.native is None else block.native.of[first : first + series][present]
        values = block.values[first : first + series][present]
        yield (rows + first).astype(np.int32), times_ms[steps], values, details_of(block.native, of)


def _samples(samples: Samples) -> Iterator[Batch]:
    for first in range(int(samples.starts[0]), int(samples.starts[-1]), BATCH_ROWS):
        last = min(first + BATCH_ROWS, int(samples.starts[-1]))
        rows = np.searchsorted(samples.starts, np.arange(first, last), side="right") - 1
        of = None if samples.native is None else samples.native.of[first:last]
        details = details_of(samples.native, of)
        yield rows.astype(np.int32), samples.ts_ms[first:last], samples.values[first:last], details
