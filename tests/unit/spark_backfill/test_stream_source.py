"""The chunk stage's source while its log does not answer. No Spark takes part."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_backfill.building.options import BuildOptions
from spark_backfill.pipeline.planner import BatchLimits
from spark_backfill.pipeline.source import ChunkStageReader
from spark_backfill.places import Places
from stack.ports import Ports
from tsdb.chunks.progress import Progress
from tsdb.log.settings import LogSettings
from tsdb.model.errors import Unavailable
from tsdb.model.time_set import DEMO, slice_lengths

IMPATIENT = LogSettings(delivery_timeout_s=0.5, request_timeout_s=0.5)


def reader_of(port: int) -> ChunkStageReader:
    places = Places(f"kafka://127.0.0.1:{port}", log_settings=IMPATIENT)
    options = BuildOptions(places, "a-topic", DEMO, slice_lengths(DEMO.name))
    return ChunkStageReader(options, {0: Progress(7, DEMO.window_ms)}, BatchLimits())


def test_an_endless_query_has_no_next_batch_while_no_broker_answers() -> None:
    with Ports(1) as ports:
        reader = reader_of(*ports.numbers)
        begun = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for _ in range(2):
            assert reader.latestOffset(begun, ReadAllAvailable()) is begun


def test_a_query_that_ends_by_itself_fails_while_no_broker_answers() -> None:
    with Ports(1) as ports, pytest.raises(Unavailable):
        reader_of(*ports.numbers).prepareForTriggerAvailableNow()
