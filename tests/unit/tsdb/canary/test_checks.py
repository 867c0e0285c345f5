"""Checks against a server that a test makes lie: each path counts what is wrong, and errors by their reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from support.counters import sample
from support.fakes.fake_reader import FakeServer
from tsdb.canary.canary_metrics import READ_PATHS, RESULTS
from tsdb.canary.checking import Checker
from tsdb.canary.layout import Layout, values_of
from tsdb.canary.ledger import Ledger
from tsdb.canary.paths import Paths
from tsdb.canary.ranges import RANGE_TICKS, SEAM_TICKS
from tsdb.canary.writing import Writer
from tsdb.client import CorruptData, connect
from tsdb.model.clock import ManualClock
from tsdb.v1 import reader_pb2

PERIOD_MS = 1000
NOW_MS = 1_790_000_000_000
WRITES = 2 * RANGE_TICKS
SEAM_MS = NOW_MS + (WRITES - SEAM_TICKS // 2) * PERIOD_MS
EDIT = Callable[[list[tuple[int, float]]], list[tuple[int, float]]]


@dataclass
class Rig:
    """A canary whose writes are done, and the server that keeps them. A restarted canary knows nothing of them."""

    server: FakeServer
    checker: Checker
    layout: Layout
    clock: ManualClock

    def change(self, edit: EDIT, row: int = 1) -> None:
        """Change what the server keeps of one series."""
        labels = self.layout.labels[row]
        self.server.samples[labels] = edit(self.server.samples[labels])

    def check(self) -> dict[str, dict[str, float]]:
        """One round: what it adds to the counts of samples, by path and result, without zeros."""
        before = counts()
        self.checker.check()
        return {
            path: {
                result: after - before[path][result] for result, after in found.items() if after != before[path][result]
            }
            for path, found in counts().items()
        }


def counts() -> dict[str, dict[str, float]]:
    return {
        path: {one: sample("tsdb_canary_samples_total", path=path, result=one) for one in RESULTS}
        for path in READ_PATHS
    }


@pytest.fixture(params=["same process", "restarted"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with rig_of(is_restarted=request.param == "restarted") as made:
        yield made


@contextmanager
def rig_of(*, is_restarted: bool, timeout_s: float = 60.0) -> Iterator[Rig]:
    """timeout_s: how long the canary's client tries again what may pass."""
    layout, clock = Layout("c", PERIOD_MS, 2), ManualClock(NOW_MS)
    with FakeServer() as server, connect(server.address, timeout_s=timeout_s) as client:
        server.state.coverage_start_ms = SEAM_MS
        server.history.append(reader_pb2.HistoryState(partition=0, reaches_memory=True))
        ledger = Ledger(PERIOD_MS)
        written = layout.ticks(NOW_MS, NOW_MS + WRITES * PERIOD_MS)
        for row, canonical in enumerate(layout.labels):
            values = values_of(np.full(WRITES, row), written, np.arange(WRITES))
            server.samples[canonical] = list(zip(written.tolist(), values.tolist(), strict=True))
        if not is_restarted:
            for ts_ms in written.tolist():
                ledger.acknowledge(ts_ms, ())
        clock.advance(WRITES * PERIOD_MS)
        Writer(client, client, layout, ledger, clock).write(NOW_MS + WRITES * PERIOD_MS)
        paths = Paths(client, layout, ledger, depth_ms=10 * RANGE_TICKS * PERIOD_MS, settle_ms=2 * PERIOD_MS)
        yield Rig(server, Checker(paths, ledger, clock, 1.0), layout, clock)


def test_all_paths_of_a_right_server_are_exact(rig: Rig) -> None:
    found = rig.check()
    assert {path: set(results) for path, results in found.items()} == {path: {"exact"} for path in READ_PATHS}
    assert min(results["exact"] for results in found.values()) >= SEAM_TICKS
    for path in READ_PATHS:
        assert sample("tsdb_canary_last_success_timestamp_seconds", path=path) == rig.clock.now_ms() / 1000
        assert sample("tsdb_canary_path_checked", path=path) == 1
    oldest_s = {path: sample("tsdb_canary_oldest_checked_timestamp_seconds", path=path) for path in READ_PATHS}
    assert oldest_s["history"] < oldest_s["seam"] < SEAM_MS / 1000 <= oldest_s["memory"]


@pytest.mark.parametrize(
    ("back", "paths"),
    [(10, {"memory", "promql", "seam"}), (SEAM_TICKS, {"seam"}), (2 * SEAM_TICKS, {"history"})],
)
class TestFaults:
    """A sample of one series is changed, `back` writes before the last."""

    def test_a_missing_sample_is_counted_by_its_paths_alone(self, rig: Rig, back: int, paths: set[str]) -> None:
        rig.change(lambda rows: [row for at, row in enumerate(rows) if at != WRITES - back])
        self.expect(rig.check(), "missing", paths)

    def test_a_wrong_value_is_counted_by_its_paths_alone(self, rig: Rig, back: int, paths: set[str]) -> None:
        rig.change(lambda rows: [(ts, value + (at == WRITES - back)) for at, (ts, value) in enumerate(rows)])
        self.expect(rig.check(), "mismatch", paths)

    def test_a_sample_that_nobody_wrote_is_counted_by_its_paths_alone(
        self, rig: Rig, back: int, paths: set[str]
    ) -> None:
        rig.change(lambda rows: [*rows, (rows[WRITES - back][0] + 1, 1.0)])
        # A PromQL query shows samples at the times of its steps alone.
        self.expect(rig.check(), "unexpected", paths - {"promql"})

    @staticmethod
    def expect(found: dict[str, dict[str, float]], result: str, paths: set[str]) -> None:
        assert {path: found[path].get(result) for path in READ_PATHS} == {
            path: 1.0 if path in paths else None for path in READ_PATHS
        }


def test_an_error_of_one_path_is_counted_by_reason_and_the_others_are_checked(rig: Rig) -> None:
    labels = {"path": "memory", "reason": "corrupt_data"}
    before = sample("tsdb_canary_check_failures_total", **labels)
    rig.server.fail = [CorruptData("a chunk does not decode")]  # The first call of the first path.
    found = rig.check()
    assert sample("tsdb_canary_check_failures_total", **labels) == before + 1
    assert {path for path in READ_PATHS if found[path]} == {"seam", "history", "promql"}


def test_a_lag_beyond_the_settled_span_fails_the_path_that_waits_for_no_write() -> None:
    labels = {"path": "promql", "reason": "lagging"}
    before = sample("tsdb_canary_check_failures_total", **labels)
    with rig_of(is_restarted=False, timeout_s=2.0) as rig:
        rig.server.state.lag_ms = 2 * PERIOD_MS
        assert set(rig.check()["promql"]) == {"exact"}
        rig.server.state.lag_ms += 1
        assert rig.check()["promql"] == {}
    assert sample("tsdb_canary_check_failures_total", **labels) == before + 1


@pytest.mark.parametrize("lack", ["history", "seam"])
def test_paths_without_history_are_shown_and_are_no_failure(rig: Rig, lack: str) -> None:
    if lack == "history":
        rig.server.history.clear()
    else:
        rig.server.state.from_start = True
    found = rig.check()
    assert {path for path in READ_PATHS if found[path]} == {"memory", "promql"}
    for path in ("seam", "history"):
        assert sample("tsdb_canary_path_checked", path=path) == 0


def test_history_older_than_the_first_sample_begins_again_with_the_newest_piece(rig: Rig) -> None:
    for _ in range(4):
        assert set(rig.check()["history"]) == {"exact"}


def test_an_empty_piece_of_history_after_a_restart_is_missing_and_not_before_the_first_sample(rig: Rig) -> None:
    end = WRITES - SEAM_TICKS // 2 - SEAM_TICKS  # Start of the newest piece.
    for row in range(rig.layout.series):
        rig.change(lambda rows: rows[: end - RANGE_TICKS] + rows[end:], row)
    assert rig.check()["history"] == {"missing": rig.layout.series * RANGE_TICKS}


@pytest.mark.parametrize("rig", ["restarted"], indirect=True)
def test_pieces_before_a_time_without_the_canary_are_checked(rig: Rig) -> None:
    end = WRITES - SEAM_TICKS // 2 - SEAM_TICKS
    first = end - RANGE_TICKS
    resumed = rig.layout.ticks(NOW_MS, NOW_MS + WRITES * PERIOD_MS)[end:]
    for row, canonical in enumerate(rig.layout.labels):
        # The canary stopped for the whole piece: its next sample names none before it.
        values = values_of(np.full(len(resumed), row), resumed, np.arange(len(resumed)))
        kept = rig.server.samples[canonical][: first - 10]
        rig.server.samples[canonical] = [*kept, *zip(resumed.tolist(), values.tolist(), strict=True)]
    assert rig.check()["history"] == {"exact": rig.layout.series * (first - 10)}


def test_partitions_of_the_log_and_of_the_canary_are_shown(rig: Rig) -> None:
    rig.check()
    assert (sample("tsdb_canary_partitions"), sample("tsdb_canary_partitions_written")) == (1, 1)
