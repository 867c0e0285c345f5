"""Any requests, faults, restarts and quiet times: what was answered OK is what a dict of last values says, and every
sample on the log was announced, acknowledged, less than a window before it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.limits import IngestLimits
from support.examples import examples
from support.fakes.fake_log import Fault, Plan
from support.servers.gateways import Bench, label_set
from tsdb.codec.records.log_record import decode_records
from tsdb.codec.records.series_record import decode_announcement
from tsdb.log.interface import SERIES
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch

LABELS = [label_set(number, instance=number % 3, name=f"m{number % 2}") for number in range(12)]
FLOOD = [label_set(number, name="flood") for number in range(600)]
DAY_MS = 24 * 3_600_000

row = st.tuples(st.integers(0, len(LABELS) - 1), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
request = st.lists(row, min_size=1, max_size=8)
faults = st.sampled_from(["none", "none", "none", "away", "lost_ack", "queue_full", "too_large", "away_series"])
step = st.tuples(request, faults, st.integers(0, 2), st.sampled_from([0, 0, 1000, PRODUCTION.window_ms // 2, DAY_MS]))


def plan_of(fault: str, after: int) -> Plan:
    """The fault happens to every append after the first `after`."""
    seen = [0]

    def plan(topic: str, partition: int, value: bytes) -> Fault | None:
        seen[0] += 1
        if seen[0] <= after or (fault == "away_series" and topic != SERIES):
            return None
        return {
            "none": None,
            "too_large": None,
            "away": Fault(Unavailable("away")),
            "away_series": Fault(Unavailable("away")),
            "lost_ack": Fault(Unavailable("lost"), stored=True),
            "queue_full": Fault(Overloaded("full", reason="queue_full"), raised=True),
        }[fault]

    return plan


def check_announced(bench: Bench, broker_ms: list[int]) -> None:
    """Every sample's (series, epoch) is on `series`, earlier in the order of appends and within a window."""
    announced: dict[tuple[int, int], int] = {}
    for record in bench.log.records:
        if record.topic == SERIES:
            announcement = decode_announcement(record.key or b"", record.value)
            announced[announcement.series_id, announcement.epoch] = broker_ms[record.order]
            continue
        decoded = decode_records(record.value, np.array([0, len(record.value)]))
        for ident, ts_ms in zip(decoded.series_id.tolist(), decoded.ts_ms.tolist(), strict=True):
            said_ms = announced[ident, index_epoch(ident, ts_ms)]
            assert broker_ms[record.order] - said_ms < PRODUCTION.window_ms


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.lists(step, min_size=1, max_size=10), st.sampled_from([300, 2000, 1 << 20]), st.booleans())
def test_what_was_answered_ok_is_on_the_log_and_announced(
    steps: list[tuple[list[tuple[int, list[int], bool]], str, int, int]], record_bytes_max: int, flood: bool
) -> None:
    bench = Bench(limits=IngestLimits(record_bytes_max=record_bytes_max, series_table_bytes=1))
    broker_ms: list[int] = []
    store = bench.log._store

    def noting(*args: object) -> object:
        broker_ms.append(bench.clock.now_ms())
        return store(*args)  # type: ignore[arg-type]  # passed through

    bench.log._store = noting  # type: ignore[assignment,method-assign]  # notes when each record landed
    certain: dict[tuple[int, int], int] = {}
    unsure: dict[tuple[int, int], set[int]] = {}
    value = 0
    for rows, fault, after, wait_ms in steps:
        if flood:  # More series than the table has rows.
            bench.log.plan, bench.log.record_bytes_max = plan_of("none", 0), None
            bench.write(FLOOD)
        labels, counts, ts_ms, values, bits = [], [], [], [], {}
        for number, offsets, late in rows:
            labels.append(LABELS[number])
            counts.append(len(offsets))
            for offset in offsets:
                value += 1
                at_ms = bench.clock.now_ms() - offset - (4 * DAY_MS if late else 0)
                ts_ms.append(at_ms)
                values.append(float(value))
                bits[series_id(LABELS[number]), at_ms] = int(np.array([value], float).view(np.int64)[0])
        bench.log.plan = plan_of(fault, after)
        bench.log.record_bytes_max = 200 if fault == "too_large" else None
        try:
            bench.write(labels, counts=counts, ts_ms=ts_ms, values=values)
            certain.update(bits)
            for key in bits:
                unsure.pop(key, None)
        except (Unavailable, Overloaded):
            for key, bit in bits.items():
                unsure.setdefault(key, set()).add(bit)
        assert bench.pipeline.inflight_bytes == 0
        if wait_ms == 1000:
            bench.restart()
        bench.clock.advance(wait_ms)
    got = bench.log.samples()
    for key, bit in certain.items():
        assert got[key] == bit or got[key] in unsure.get(key, ()), "an acknowledged sample is shown, or a later try"
    written = {series_id(one) for one in LABELS}
    assert {key for key in got if key[0] in written} <= set(certain) | set(unsure)
    check_announced(bench, broker_ms)
