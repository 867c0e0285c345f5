"""Day files: write the sorted rows of a task as Parquet files, one for each day. A file is complete or absent.

Arrow writes the files: Spark's writer replaces every NaN by one value, and the stale marker is a NaN with a payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext

from spark_backfill.failures import quoted_errors
from tsdb.codec.histogram_rows import HISTOGRAM
from tsdb.history.parquet.files import file_system

FILE_SCHEMA = pa.schema(
    [
        ("labels", pa.string()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("histogram", HISTOGRAM),
        ("start_ms", pa.int64()),
    ]
)
DAY = "day"
SUCCESS = "_SUCCESS"  # Spark's name of the file that marks a complete folder.


@dataclass(frozen=True, slots=True)
class DayFiles:
    """A value that Spark sends to tasks. folder: a path, or a URI for which Arrow has a file system.

    A file is named by its task's number, and gets that name when it is complete: a second attempt replaces the file by
    the same rows.
    """

    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Used by `mapInArrow`. batches: columns day and those of FILE_SCHEMA, ascending by day. Yields one row:
        `rows`."""
        context = TaskContext.get()
        assert context is not None, "a task has a context"
        with quoted_errors():
            rows = self.write(context.partitionId(), context.attemptNumber(), batches)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})

    def write(self, number: int, attempt: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Write all files of a task; return their number of rows."""
        system, root = file_system(self.folder)
        rows, day = 0, None
        writer: pq.ParquetWriter | None = None
        for batch in batches:
            for start, end in _runs(batch.column(DAY)):
                part = batch.slice(start, end - start)
                if part.column(DAY)[0].as_py() != day:
                    self._close(system, root, number, attempt, day, writer)
                    day = part.column(DAY)[0].as_py()
                    system.create_dir(f"{root}/{DAY}={day}", recursive=True)
                    writer = pq.ParquetWriter(
                        _unfinished(root, number, attempt, day), FILE_SCHEMA, filesystem=system, compression="zstd"
                    )
                assert writer is not None, "a run has a day"
                writer.write_table(pa.Table.from_batches([part.select(FILE_SCHEMA.names)]).cast(FILE_SCHEMA))
                rows += len(part)
        self._close(system, root, number, attempt, day, writer)
        return rows

    def finish(self) -> None:
        """Mark the folder as complete. Called on the driver after all tasks."""
        system, root = file_system(self.folder)
        system.create_dir(root, recursive=True)
        with system.open_output_stream(f"{root}/{SUCCESS}"):
            pass

    def clear(self) -> None:
        """Delete the folder. Called on the driver before any task."""
        system, root = file_system(self.folder)
        if self.exists():
            system.delete_dir(root)

    def exists(self) -> bool:
        """Whether the folder exists, or a file with its name."""
        system, root = file_system(self.folder)
        return bool(system.get_file_info(root).type != pafs.FileType.NotFound)

    @staticmethod
    def _close(
        system: pafs.FileSystem, root: str, number: int, attempt: int, day: str | None, writer: pq.ParquetWriter | None
    ) -> None:
        if writer is not None:
            writer.close()
            system.move(_unfinished(root, number, attempt, day), f"{root}/{DAY}={day}/part-{number:05d}.parquet")


def _unfinished(root: str, number: int, attempt: int, day: str | None) -> str:
    """Path of a file that is being written. Its underscore hides it from readers, and each attempt has another path."""
    return f"{root}/{DAY}={day}/_part-{number:05d}-{attempt}.parquet"


def _runs(days: pa.Array) -> Iterator[tuple[int, int]]:
    """The range [start, end) of each run of one day."""
    if not len(days):
        return
    changed = pc.not_equal(days.slice(1), days.slice(0, len(days) - 1))
    borders = [0, *(at + 1 for at in pc.indices_nonzero(changed).to_pylist()), len(days)]
    yield from pairwise(borders)
