"""Exemplars of a remote-write request: their messages, in both versions, as exemplars of rows.

An Exemplar of version 1 has Label messages, that of version 2 references to the symbols; value and timestamp have the
same fields. An absent value or timestamp is zero, as Prometheus keeps it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ingest.exemplars import LABELS_MALFORMED, TOO_MANY, ExemplarRows, count_dropped
from ingest.protobuf_fields import Buffer, fields, signed, varints
from ingest.remote_write.wire import VERSION_1, Wire
from ingest.rows import RowExemplars
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH, VARINT
from tsdb.codec.records.exemplar_record import LABEL_BYTES_MAX

_REFERENCES_MAX = 1024  # References of one exemplar, which may have 128 characters.


def exemplars_of(wire: Wire, body: Buffer, version: int) -> RowExemplars | None:
    """Raises InvalidRequest (malformed_request) for bytes that are not an Exemplar message."""
    count_dropped(TOO_MANY, wire.exemplars_left_out)
    found = ExemplarRows(len(wire.exemplars))
    symbols = None if version == VERSION_1 else wire.symbols.tolist()
    for row, start, stop in wire.exemplars.tolist():
        _add(found, row, body, start, stop, symbols)
    return found.built()


def _add(found: ExemplarRows, row: int, body: Buffer, start: int, stop: int, symbols: Sequence[int] | None) -> None:
    """symbols: spans of the symbols; None in version 1, whose labels are messages."""
    value, ts_ms = 0.0, 0
    references: list[int] = []
    pairs: list[tuple[bytes, bytes]] = []
    for number, kind, at, end in fields(body, start, stop):
        if number == 1 and kind == LENGTH and symbols is None:
            texts = {one: bytes(body[first:last]) for one, wire, first, last in fields(body, at, end) if wire == LENGTH}
            pairs.append((texts.get(1, b""), texts.get(2, b"")))
        elif number == 1 and kind == LENGTH:
            references += list(varints(body, at, end))
        elif number == 1 and kind == VARINT:
            references.append(at)
        elif number == 2 and kind == FIXED64:
            (value,) = struct.unpack_from("<d", body, at)
        elif number == 3 and kind == VARINT:
            ts_ms = signed(at)
    if symbols is not None:
        if len(references) % 2 or any(2 * one >= len(symbols) for one in references):
            count_dropped(LABELS_MALFORMED)
            return
        named = [_symbol(body, symbols, one) for one in references[:_REFERENCES_MAX]]
        pairs += zip(named[::2], named[1::2], strict=True)
    found.add(row, ts_ms, value, pairs)


def _symbol(body: Buffer, symbols: Sequence[int], number: int) -> bytes:
    """A symbol. Two bytes of a reference may name one of a MiB: no more is copied than an exemplar may have."""
    start, stop = symbols[2 * number], symbols[2 * number + 1]
    return bytes(body[start : min(stop, start + LABEL_BYTES_MAX)])
