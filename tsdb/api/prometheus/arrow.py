"""Arrow: results of queries as a stream of record batches, for callers that ask for it instead of JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.answer import Representation, json_of, shown_annotations
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text

if TYPE_CHECKING:
    import pyarrow

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 1 << 16  # A batch takes 1.3 MB.
LABEL_COPIES = 4  # Copies of labels: Python's texts, the dictionary, and the first piece that has it.
NO_LABELS = b"{}"

Batch = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]
"""Schema of the rows: number of the series, time, value."""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """The rows of a result. labels: sorted JSON of each series. text: the text of a string result, which has no
    rows."""

    labels: Sequence[bytes]
    batches: Iterator[Batch]
    text: str | None = None

    @property
    def label_bytes(self) -> int:
        """Memory of the labels, in all forms."""
        return LABEL_COPIES * sum(map(len, self.labels))


def arrow_rows(value: Block | Samples | Scalar | Text, times_ms: NDArray[np.int64]) -> ArrowRows:
    """The rows of a result, series by series. times_ms: times of the steps."""
    if isinstance(value, Text):
        return ArrowRows((), iter(()), value.value)
    if isinstance(value, Scalar):
        return ArrowRows((NO_LABELS,), iter(((np.zeros(1, np.int32), times_ms[:1], value.values[:1]),)))
    labels = [json_of(value.labels.row(row)) for row in range(len(value.labels))]
    return ArrowRows(labels, _samples(value) if isinstance(value, Samples) else _block(value, times_ms))


def arrow_answer(kind: str, rows: ArrowRows, warnings: Sequence[str], infos: Sequence[str]) -> Representation:
    """Columns labels (dictionary-encoded), ts_ms, value. Metadata of the schema: resultType, warnings and infos as
    lists in JSON, and the text of a string."""
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
    schema = pyarrow.schema(
        {
            "labels": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            "ts_ms": pyarrow.int64(),
            "value": pyarrow.float64(),
        },
        metadata,
    )
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in rows.batches:
            writer.write_batch(_record_batch(batch, dictionary, schema))
            yield _taken(sink)
    yield _taken(sink)


def _record_batch(batch: Batch, dictionary: pyarrow.Array, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    import pyarrow

    codes, ts_ms, values = map(pyarrow.array, batch)
    labels = pyarrow.DictionaryArray.from_arrays(codes, dictionary)
    return pyarrow.RecordBatch.from_arrays([labels, ts_ms, values], schema=schema)


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
        yield (rows + first).astype(np.int32), times_ms[steps], block.values[first : first + series][present]


def _samples(samples: Samples) -> Iterator[Batch]:
    for first in range(int(samples.starts[0]), int(samples.starts[-1]), BATCH_ROWS):
        last = min(first + BATCH_ROWS, int(samples.starts[-1]))
        rows = np.searchsorted(samples.starts, np.arange(first, last), side="right") - 1
        yield rows.astype(np.int32), samples.ts_ms[first:last], samples.values[first:last]
