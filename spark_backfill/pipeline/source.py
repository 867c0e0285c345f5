"""Source: the chunk stage as a streaming data source. Its rows are receipts; what it makes is written by its tasks.

The planner runs in a process of Spark's own beside the driver, `read` in Python workers. A batch that is run again, by
whomever, writes the same keys and bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_backfill.building.items import Item
from spark_backfill.building.options import BuildOptions, build_options_of
from spark_backfill.building.task import RECEIPT_DDL, run_item
from spark_backfill.failures import quoted_errors
from spark_backfill.pipeline.offsets import StreamOffset, adopted, offset_of
from spark_backfill.pipeline.planner import BatchLimits, Planner
from tsdb.chunks.progress import Progress
from tsdb.log.interface import Log
from tsdb.model.errors import WrongTopic

NAME = "tsdb_chunk_stage"
FOUND, LIMITS = "found", "limits"  # Names of options.


@dataclass(frozen=True)
class ItemPartition(InputPartition):
    """One work item."""

    item: Item


class ChunkStageSource(DataSource):
    """Options: those of BuildOptions; found: where the group stands, by partition; limits: BatchLimits."""

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
    """Plans in one process, where it lives as long as the query; copies of it read."""

    def __init__(self, options: BuildOptions, found: Mapping[int, Progress], limits: BatchLimits) -> None:
        self._options = options
        self._found = dict(found)
        self._limits = limits
        self._log: Log | None = None
        self._planner: Planner | None = None
        self._begun = False

    def initialOffset(self) -> dict[str, Any]:
        """Nothing: it is not recorded and asked again, so all that counts comes with the first batch."""
        return StreamOffset().as_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The first batch of a life has no work: it pins where the others begin, and tells what was done before."""
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
            after = self._planning().next(before)
            return start if after is before else after.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes later is for a later run."""
        with quoted_errors():
            self._planning().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Of the end alone: what it says is the work of the batch that ends there."""
        with quoted_errors():
            return [ItemPartition(item) for item in offset_of(end).items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Build and write; ends when all is acknowledged."""
        assert isinstance(partition, ItemPartition)
        with quoted_errors():
            yield run_item(partition.item, self._options)

    def stop(self) -> None:
        """Release the planner's log."""
        if self._log is not None:
            self._log.close()

    def _planning(self) -> Planner:
        if self._planner is None:
            self._log = self._options.places.open_log()
            self._planner = Planner(self._log, self._options, self._limits)
        return self._planner


def found_text(found: Mapping[int, Progress]) -> str:
    """As the option `found`."""
    return json.dumps({number: asdict(progress) for number, progress in found.items()})


def found_of(text: str) -> dict[int, Progress]:
    """The other way."""
    return {int(number): Progress(**progress) for number, progress in json.loads(text).items()}
