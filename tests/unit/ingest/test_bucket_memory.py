"""Boundaries that a histogram has no more: each gets its markers, also in a process that never saw them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ingest.announced_boundaries import SeriesBoundaries
from ingest.bucket_memory import MARK_FOR_MS, BucketMemory, MustWait, histogram_of
from ingest.limits import IngestLimits
from ingest.pipeline import WritePipeline
from ingest.rows import make_rows
from support.fakes.fake_log import FakeLog
from support.servers.gateways import NOW_MS
from support.servers.logs import LogFactory, wait_until
from tsdb.log.interface import Log, Watermarks
from tsdb.model.clock import ManualClock, SystemClock
from tsdb.model.errors import Unavailable
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.ops.lifecycle import Deadline

BUCKET = b"__name__\xfflat_bucket\xffjob\xffj"
HIGH, LOW = frozenset({b"4", b"8"}), frozenset({b"0.25", b"0.5"})


class Announced:
    """Boundaries that the test announces."""

    ready = True

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def of(self, histogram: int) -> Collection[bytes]:
        assert histogram == histogram_of(BUCKET)
        return tuple(self.texts)


def test_a_boundary_that_is_gone_is_marked_for_ten_minutes_and_not_for_ever() -> None:
    memory = BucketMemory()
    assert memory.gone(BUCKET, HIGH, NOW_MS) == []
    assert set(memory.gone(BUCKET, LOW, NOW_MS + 1)) == HIGH
    assert set(memory.gone(BUCKET, LOW, NOW_MS + MARK_FOR_MS)) == HIGH
    assert set(memory.gone(BUCKET, LOW, NOW_MS + MARK_FOR_MS + 1)) == HIGH
    assert memory.gone(BUCKET, LOW, NOW_MS + MARK_FOR_MS + 2) == []
    assert set(memory.gone(BUCKET, (), NOW_MS + MARK_FOR_MS + 3)) == LOW


def test_a_boundary_that_comes_back_is_marked_no_more() -> None:
    memory = BucketMemory()
    memory.gone(BUCKET, HIGH, NOW_MS)
    memory.gone(BUCKET, LOW, NOW_MS + 1)
    assert memory.gone(BUCKET, HIGH | LOW, NOW_MS + 2) == []


def test_a_late_sample_marks_nothing_and_changes_nothing() -> None:
    memory = BucketMemory()
    memory.gone(BUCKET, HIGH, NOW_MS)
    assert memory.gone(BUCKET, LOW, NOW_MS - 1) == []
    assert memory.gone(BUCKET, HIGH, NOW_MS + 1) == []


def test_a_request_that_is_sent_again_has_its_markers_again() -> None:
    memory = BucketMemory()
    memory.gone(BUCKET, HIGH, NOW_MS)
    assert memory.gone(BUCKET, LOW, NOW_MS + 1) == memory.gone(BUCKET, LOW, NOW_MS + 1) != []


def test_a_process_that_never_saw_a_boundary_marks_it_once_it_is_announced() -> None:
    announced = Announced()
    announced.texts = [b"4", b"8"]
    memory = BucketMemory(announced)
    assert set(memory.gone(BUCKET, LOW, NOW_MS)) == HIGH, "a new process"
    announced.texts.append(b"16")  # Another gateway announced this boundary.
    assert set(memory.gone(BUCKET, LOW, NOW_MS + 1)) == HIGH | {b"16"}


def test_what_was_pushed_out_is_learned_again() -> None:
    announced = Announced()
    memory = BucketMemory(announced, histograms_max=1)
    memory.gone(BUCKET, HIGH, NOW_MS)
    memory._announced = None
    memory.gone(BUCKET + b"2", HIGH, NOW_MS)
    memory._announced, announced.texts = announced, sorted(HIGH)
    assert set(memory.gone(BUCKET, LOW, NOW_MS + 1)) == HIGH


def test_the_number_of_a_histogram_is_that_of_its_labels_in_any_order() -> None:
    assert histogram_of(BUCKET) == histogram_of(b"job\xffj\xff__name__\xfflat_bucket")
    assert histogram_of(BUCKET) != histogram_of(b"job\xffk\xff__name__\xfflat_bucket")


@contextmanager
def boundaries(log: Log) -> Iterator[SeriesBoundaries]:
    made = SeriesBoundaries(log, 3, PRODUCTION.window_ms, SystemClock())
    made.start()
    yield made
    made.close()
    assert made.join(60.0)


def test_boundaries_on_the_topic_are_found_also_those_that_come_later(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", f"t{uuid.uuid4().hex[:8]}.") as logs:
        logs.create(3)
        log, clock = logs.open(), SystemClock()
        pipeline = WritePipeline(log, PlacementRule(), 3, PRODUCTION, IngestLimits(), clock)

        def write(*labels: dict[str, str]) -> None:
            times = np.full(len(labels), clock.now_ms())
            rows = make_rows([canonical_labels(one) for one in labels], None, times, times.astype(float))
            pipeline.write(rows, False, Deadline.after(10.0))

        bucket = {"__name__": "lat_bucket", "job": "j"}
        write(
            {**bucket, "le": "4"}, {**bucket, "le": "+Inf"}, {**bucket, "le": "8", "A": "le"},
            {"__name__": "lat_bucket", "job": "j", "x": "le", "y": "3"}, {"__name__": "lat_count", "le": "9"},
        )  # fmt: skip
        with boundaries(log) as found:
            assert set(found.of(histogram_of(BUCKET))) == {b"4"}
            assert set(found.of(histogram_of(canonical_labels({**bucket, "A": "le"})))) == {b"8"}
            write({**bucket, "le": "16"})
            wait_until(lambda: set(found.of(histogram_of(BUCKET))) == {b"4", b"16"})


def test_a_gateway_without_native_histograms_reads_nothing() -> None:
    with boundaries(FakeLog(3, ManualClock(NOW_MS))) as found:
        assert found._thread is None


def test_while_the_topic_is_read_a_request_is_sent_away_with_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(FakeLog):
        def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
            raise Unavailable("no broker answers")

    monkeypatch.setattr("ingest.announced_boundaries.WAIT_S", 0.01)
    with boundaries(Away(3, ManualClock(NOW_MS))) as found:
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                BucketMemory(found).gone(BUCKET, LOW, NOW_MS)
            assert (caught.value.reason, bool(caught.value.retry_after_s)) == ("boundaries", True)


def test_a_thread_that_must_not_wait_gets_no_boundaries_until_they_are_read(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", f"t{uuid.uuid4().hex[:8]}.") as logs:
        logs.create(3)
        with boundaries(logs.open()) as found:
            memory = BucketMemory(found)
            with pytest.raises(MustWait):
                memory.check_wait(may_wait=False)
            memory.check_wait(may_wait=True)
            memory.gone(BUCKET, LOW, NOW_MS)
            memory.check_wait(may_wait=False)
    BucketMemory().check_wait(may_wait=False)
