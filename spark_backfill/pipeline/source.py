"""Source: the chunk stage as a streaming data source. Its rows are receipts; its tasks write the chunks.

The planner runs in a separate Python process that Spark starts beside the driver, `read` in Python workers. A repeated
batch writes the same keys and bytes, in whichever process it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_backfill.building.items import Item
from spark_backfill.building.options import BuildOptions, build_options_of
from spark_backfill.building.patience import patiently
from spark_backfill.building.task import RECEIPT_DDL, run_item
from spark_backfill.failures import quoted_errors
from spark_backfill.pipeline.offsets import PipelineOffset, adopted, offset_of
from spark_backfill.pipeline.planner import BatchLimits, Planner
from tsdb.chunks.progress import Progress
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable, WrongTopic
from tsdb.ops.logs import get_logger

NAME = "tsdb_chunk_stage"
FOUND, LIMITS = "found", "limits"  # Names of options.

log = get_logger(__name__)


@dataclass(frozen=True)
class ItemPartition(InputPartition):
    """One work item, as an input partition of Spark."""

    item: Item


class ChunkStageSource(DataSource):
    """Options: those of BuildOptions; `found`, the group's progress by partition; `limits`, the BatchLimits. The last
    two are JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return RECEIPT_DDL

    def streamReader(self, schema: StructType) -> ChunkStageReader:
        options = self.options
        return ChunkStageReader(
            build_options_of(options), found_of(options[FOUND]), BatchLimits(**json.loads(options[LIMITS]))
        )


class ChunkStageReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, as long as the query lives. Spark sends copies of it to tasks, which read."""

    def __init__(self, options: BuildOptions, found: Mapping[int, Progress], limits: BatchLimits) -> None:
        self._options = options
        self._found = dict(found)
        self._limits = limits
        self._log: Log | None = None
        self._planner: Planner | None = None
        self._begun = False
        self._ends = False  # The query ends when there is no next batch.

    def initialOffset(self) -> dict[str, Any]:
        """An empty offset. Spark does not record it and may request it again, so the first batch carries the state."""
        return PipelineOffset().as_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset after the next batch.

        The first batch of a run has no work: its offset records the progress from which later batches continue. While
        the log does not answer, an endless query has no next batch, as the Python chunker has none. A query that ends
        by itself raises Unavailable instead. Raises WrongTopic (checkpoint_topic), and the errors of Planner.next.
        """
        with quoted_errors():
            before = offset_of(start)
            if before.topic_id and before.topic_id != self._options.topic_id:
                raise WrongTopic(
                    f"the checkpoint is of topic id {before.topic_id}; the log's is {self._options.topic_id}: it was"
                    " made anew; begin with a new checkpoint",
                    reason="checkpoint_topic",
                )
            if not self._begun:
                self._begun = True
                return adopted(before, self._options.topic_id, self._found).as_json()
            after = self._next(before)
            return start if after is before else after.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Plan for records up to the current end of the log. Later records are left to a later run."""
        with quoted_errors():
            self._planning().freeze()
            self._ends = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Parts of the batch that ends at `end`. `start` is not needed: `end` contains the batch's work."""
        with quoted_errors():
            return [ItemPartition(item) for item in offset_of(end).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Build and write one item; yield its receipt when all records are acknowledged."""
        assert isinstance(partition, ItemPartition)
        with quoted_errors():
            run = partial(run_item, partition.item, self._options)
            yield patiently(run, SystemClock(), self._options.patience_s)

    def stop(self) -> None:
        """Release the planner's log."""
        if self._log is not None:
            self._log.close()

    def _next(self, before: PipelineOffset) -> PipelineOffset:
        try:
            return self._planning().next(before)
        except Unavailable as error:
            if self._ends:
                raise
            log.warning("no new batch: the log does not answer", reason=error.reason, error=error.message)
            return before

    def _planning(self) -> Planner:
        if self._planner is None:
            self._log = self._options.places.open_log()
            self._planner = Planner(self._log, self._options, self._limits)
        return self._planner


def found_text(found: Mapping[int, Progress]) -> str:
    """Progress as text of the option `found`."""
    return json.dumps({number: asdict(progress) for number, progress in found.items()})


def found_of(text: str) -> dict[int, Progress]:
    """Progress from text of the option `found`."""
    return {int(number): Progress(**progress) for number, progress in json.loads(text).items()}
