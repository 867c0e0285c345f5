"""Joins are not visible: a reader sees the requests one after the other, and each request is answered once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingest.appends.partition_queue import WAIT_S
from ingest.limits import IngestLimits
from ingest.pipeline import AcceptedWrite
from support.fakes.fake_log import Fault
from support.servers.gateways import NOW_MS, Bench, label_set
from tsdb.codec.records.log_record import decode_records
from tsdb.log.interface import METRICS
from tsdb.model.errors import Unavailable
from tsdb.model.labels import series_id

SERIES = 6  # Series of two metrics and three sources.
LABELS = [label_set(0, name=f"m{number % 2}", instance=number // 2) for number in range(SERIES)]
FAILS, LOST = "fails", "lost"

Action = list[tuple[int, int]] | tuple[str, int] | tuple[str, str]
"""Rows to write, each a series and ms back; or answers to give, ms to pass, the fault of the next append."""

rows = st.lists(st.tuples(st.integers(0, SERIES - 1), st.integers(0, 3)), min_size=1, max_size=6)
actions = st.lists(
    st.one_of(
        rows,
        st.integers(1, 4).map(lambda count: ("answer", count)),
        st.integers(1, 9).map(lambda ms: ("wait", ms)),
        st.sampled_from([FAILS, LOST]).map(lambda fault: ("next", fault)),
    ),
    max_size=40,
)


Sent = tuple[set[float], dict[tuple[int, int], float], Future[AcceptedWrite]]
"""Values of a request, the value of each (series, timestamp) that a reader shows for it alone, and its answer."""


class Run:
    """A gateway and the requests sent to it; values are unique and ascend."""

    def __init__(self, **limits: int) -> None:
        self.bench = Bench(limits=IngestLimits(**limits), manual_timer=True)  # type: ignore[arg-type]  # its fields
        self.bench.write(LABELS, values=[-1.0] * SERIES)
        self.bench.log.hold(METRICS)
        self.bench.log.plan = self._plan
        self.requests: list[Sent] = []
        self.failed: set[float] = set()
        self._fault = ""
        self._values = 0

    def act(self, action: Action) -> None:
        if isinstance(action, list):
            self._write(action)
        elif isinstance(action[1], str):
            self._fault = action[1]
        elif action[0] == "answer":
            self.bench.log.answer(action[1])
        else:
            self.bench.clock.advance(action[1])
            self.bench.timer.fire()

    def end(self) -> None:
        """Answer all records, and let the parts go on that wait for one another, until every request has its answer."""
        while self.bench.log.answer(100) or self._end_waits():
            pass

    def _end_waits(self) -> bool:
        self.bench.clock.advance(round(WAIT_S * 1000) + 1)
        return self.bench.timer.fire() > 0

    def _write(self, made: Sequence[tuple[int, int]]) -> None:
        values = [float(self._values + number) for number in range(len(made))]
        self._values += len(made)
        ts_ms = [NOW_MS - back for _, back in made]
        answer = self.bench.submit([LABELS[number] for number, _ in made], ts_ms=ts_ms, values=values)
        last = {
            (series_id(LABELS[number]), NOW_MS - back): value
            for (number, back), value in zip(made, values, strict=True)
        }
        self.requests.append((set(values), last, answer))

    def _plan(self, topic: str, partition: int, value: bytes) -> Fault | None:
        fault, self._fault = self._fault, ""
        if not fault:
            return None
        self.failed |= set(decode_records(value, np.array([0, len(value)])).value.tolist())
        return Fault(Unavailable("away"), stored=fault == LOST)


def shown(bench: Bench) -> dict[tuple[int, int], float]:
    return {key: float(np.int64(bits).view(np.float64)) for key, bits in bench.log.samples().items()}


@given(actions)
def test_every_request_is_answered_once_and_a_reader_sees_them_one_after_the_other(todo: list[Action]) -> None:
    run = Run()
    expected = {(series_id(labels), NOW_MS): -1.0 for labels in LABELS}
    for action in todo:
        run.act(action)
    run.end()
    for values, _, answer in run.requests:
        failed = bool(values & run.failed)
        assert answer.done()
        assert (answer.exception() is not None) == failed
    if not run.failed:
        for _, last, _ in run.requests:
            expected |= last
        assert shown(run.bench) == expected
    assert run.bench.pipeline.inflight_bytes == 0


@given(actions)
def test_tokens_name_records_that_hold_every_sample_of_an_accepted_request(todo: list[Action]) -> None:
    run = Run()
    for action in todo:
        run.act(action)
    run.end()
    held = {
        (r.partition, r.offset): set(decode_records(r.value, np.array([0, len(r.value)])).value.tolist())
        for r in run.bench.log.of(METRICS)
    }
    for values, _, answer in run.requests:
        if answer.exception() is None:
            tokens = answer.result().tokens
            named = set().union(*(held[token.partition, token.record_offset] for token in tokens))
            assert values <= named


@given(actions, st.integers(80, 300))
def test_with_a_broker_of_small_records_each_request_keeps_its_order(todo: list[Action], bytes_max: int) -> None:
    run = Run()
    run.bench.log.record_bytes_max = bytes_max
    for action in todo:
        if not (isinstance(action, tuple) and action[0] == "next"):
            run.act(action)
    run.end()
    got = shown(run.bench)
    winners = set().union({-1.0}, *(last.values() for _, last, _ in run.requests))
    assert set(got.values()) <= winners
    assert all(answer.exception() is None for _, _, answer in run.requests)
    assert set(got) >= set().union(*(last for _, last, _ in run.requests))
