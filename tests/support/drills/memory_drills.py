"""Drills of memory: one source floods a gateway or a store with series, others write and read beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from support.data.series_flood import LABEL_VALUE_BYTES, SeriesFlood
from support.drills.bystander import JOB, Bystander, RssPeak, check_unharmed
from support.servers.deployments import Deployment
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, ReadOptions, Unavailable, WriteBatch, WriteResult, connect
from tsdb.model.labels import canonical_labels
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule

MIB = 1 << 20
# Memory that docs/bounds.md states: of a store beside its heads, and of a gateway in the same process for its known
# series.
STORE_BESIDE_BYTES = 650 * MIB
GATEWAY_BESIDE_BYTES = 450 * MIB
DRAIN_S = 25.0
HEALTHY = 12  # Sources that are spread over the partitions.


def limited_flood(running: Deployment, *, source_max: int, series: int, calls: int) -> None:
    """A source that tries `series` series, far over its limit. It is refused by name, and other sources do not notice
    it.
    """
    with Bystander(running.gateway, running.store, _roles(running)) as bystander:
        quiet = bystander.quiet(calls=calls)
        with RssPeak(running.store.process.pid) as rss, SeriesFlood(running.gateway, None) as flood:
            wait_until(lambda: "source_series_limit" in flood.refused, 60.0)
            attacked = bystander.attacked(quiet, calls=calls)
            wait_until(lambda: flood.tried >= series, 300.0)
        quiet = bystander.quiet_again(quiet, attacked, calls=calls)
        bystander.check_all_is_read_back()
    assert flood.accepted <= source_max
    assert flood.refused.keys() == {"source_series_limit"}, flood.messages
    assert 'instance="flood"' in flood.messages["source_series_limit"]
    print(f"{flood.accepted} of {flood.tried} series accepted, {flood.refused}, RSS +{rss.grown_bytes / MIB:.0f} MiB")
    assert rss.grown_bytes <= 4 * source_max * LABEL_VALUE_BYTES + 150 * MIB
    check_unharmed(quiet, attacked)


def unlimited_flood(
    running: Deployment, *, series: int, hard_bytes: int, beside_bytes: int, restart_hard_bytes: int, calls: int
) -> None:
    """A flood that no limit of series stops: one partition of the store waits, alone, and again after a restart.

    Clients of other partitions feel nothing. With more memory everything is there.
    """
    bound = hard_bytes + beside_bytes
    with (
        running.writer() as writer,
        Bystander(
            running.gateway, running.store, _roles(running), alone=True, instance=beside_flood(running)
        ) as bystander,
        RssPeak(running.store.process.pid) as rss,
    ):
        healthy = write_healthy(writer)
        quiet = bystander.quiet(calls=calls)
        with SeriesFlood(running.gateway, series) as flood:
            attacked = bystander.attacked(quiet, calls=calls)
            wait_until(lambda: "memory_hard" in reasons(running.store).values(), 120.0)
            healthy += write_healthy(writer)
            flood.wait(300.0)
        quiet = bystander.quiet_again(quiet, attacked, calls=calls)
        bystander.check_all_is_read_back()
    assert flood.accepted == series, flood.messages
    (full,) = flood.partitions
    assert full not in bystander.partitions
    check_unharmed(quiet, attacked)
    check_alone(running.store, full, healthy)
    print(f"{series} series, RSS {rss.peak_bytes / MIB:.0f} MiB of {bound / MIB:.0f}")
    assert rss.peak_bytes <= bound
    assert running.store.terminate_within(DRAIN_S) == 0
    running.store.start(ready=False)
    with RssPeak(running.store.process.pid) as again:
        check_alone(running.store, full, healthy)
    print(f"after a restart RSS {again.peak_bytes / MIB:.0f} MiB")
    assert again.peak_bytes <= bound
    restart_with(running.store, restart_hard_bytes)
    check_complete(running.reader(), healthy, series)


def ends_in_a_flood(running: Deployment, *, series: int) -> None:
    """SIGTERM in the middle of a flood, after `series` series were tried, ends every process within drain_s."""
    with SeriesFlood(running.gateway, None, instance="last", timeout_s=3.0) as flood:
        wait_until(lambda: flood.tried >= series, 120.0)
        for role in _roles(running):
            assert role.terminate_within(DRAIN_S) == 0


def beside_flood(running: Deployment) -> str:
    """An instance of the bystander's job that has another partition than the flood."""

    def partition(job: str, instance: str) -> int:
        canonical = canonical_labels({"__name__": "any", "job": job, "instance": instance})
        return partition_of(PlacementRule().place(canonical).placement, len(reasons(running.store)))

    flood = partition("j", "flood")
    return next(instance for instance in map(str, range(100)) if partition(JOB, instance) != flood)


def _roles(running: Deployment) -> list[Role]:
    return list({running.gateway.grpc: running.gateway, running.store.grpc: running.store}.values())


def write_healthy(writer: Client) -> list[WriteResult]:
    """Write one sample of each healthy source. Returns the answers by source."""
    now_ms = time.time_ns() // 1_000_000
    results = []
    for source in range(HEALTHY):
        batch = WriteBatch()
        batch.add({"__name__": "healthy", "job": "h", "instance": f"{source}"}, now_ms, float(source))
        results.append(writer.write(batch))
    return results


def reasons(store: Role) -> dict[int, str]:
    """Why each partition is not ready; empty where it is."""
    _, body = store.ready()
    partitions = (body or {}).get("partitions", {})
    return {int(number): str(state["reason"] or "") for number, state in partitions.items()}


def check_alone(store: Role, full: int, healthy: Sequence[WriteResult]) -> None:
    """Check that only the full partition waits, with its reason, and that healthy sources of other partitions are
    answered.
    """
    wait_until(lambda: reasons(store).get(full) == "memory_hard", 200.0)
    wait_until(lambda: not any(reason for number, reason in reasons(store).items() if number != full), 200.0)
    message = store.ready()[1]["partitions"][str(full)]["message"]
    for part in ('instance="flood"', "bytes of labels", "memory_hard_bytes"):
        assert part in message, message
    others = {token.partition for result in healthy for token in result.tokens} - {full}
    assert others, "healthy sources are spread over the partitions"
    with connect(store.grpc, timeout_s=20.0) as reader:
        for partition in others:
            expected = sum(result.tokens[0].partition == partition for result in healthy[:HEALTHY])
            answer = reader.select("healthy", 0, 1 << 50, options=ReadOptions(partitions=[partition]))
            assert len(answer) == expected
        with pytest.raises(Unavailable, match="memory_hard"):
            reader.select("healthy", 0, 1 << 50, options=ReadOptions(partitions=[full]), timeout_s=10.0)


def restart_with(store: Role, hard_bytes: int) -> None:
    """The same store with other limits of memory."""
    store.terminate()
    for flag in ("--memory-soft-bytes", "--memory-hard-bytes"):
        store.arguments[store.arguments.index(flag) + 1] = str(hard_bytes)
    store.start()


def check_complete(reader: Client, healthy: Sequence[WriteResult], series: int) -> None:
    """Everything that was accepted is answered."""
    tokens = [token for result in healthy for token in result.tokens]
    with reader:
        answer = reader.select("healthy", 0, 1 << 50, options=ReadOptions(after=tokens), timeout_s=60.0)
        assert answer.samples == len(healthy)
        assert sum(group.series for group in reader.series_groups("flood", ["instance"])) == series
