"""Rulers of a deployment: their rules, samples of which some are late, and what their results must be."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import urlencode

from support.servers.deployments import Deployment
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import TsdbError, WriteBatch, connect

WITHIN_S = 200.0
GROUPS = 6
FOR_MS = 4_000
LATE_MAX_MS = 600_000
FLOOD_TURNS = 75  # Writes between two floods: some 15 s.
Sample: TypeAlias = tuple[str, int, float]  # Job, time in ms, value.

NAMES = {f"g{number}" for number in range(GROUPS)}
RULES = """
  - name: g{number}
    interval: 2s
    rules:
    - {{record: "sum_{number}", expr: 'sum by (job) (x)'}}
    - {{record: "mean_{number}", expr: 'avg_over_time(sum_{before}[10s])'}}
    - {{alert: "High{number}", expr: 'sum_{number} > 2', for: 4s}}
"""


def rule_file() -> str:
    """Groups that read records of one another."""
    texts = [RULES.format(number=number, before=(number + 1) % GROUPS if number else 0) for number in range(GROUPS)]
    return f"groups:{''.join(texts)}"


def get(http: str, path: str, **parameters: Any) -> Any:
    """The data of an answer of the API, once the stores answer: one that was killed reads the log first."""
    url, found = f"http://{http}/api/v1/{path}?{urlencode(parameters)}", []

    def is_answered() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found.append(json.load(answer)["data"])
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        return bool(found)

    wait_until(is_answered, WITHIN_S)
    return found[0]


def samples(http: str, selector: str) -> dict[tuple[str, int], float]:
    """Values of the last minutes by label job and time in ms."""
    found = get(http, "query", query=f"{selector}[10m]")["result"]
    return {
        (one["metric"].get("job", ""), round(at * 1000)): float(value) for one in found for at, value in one["values"]
    }


@contextmanager
def written(deployment: Deployment, seed: int) -> Iterator[None]:
    """Samples of two jobs until the block ends. Most are of the present, some late by up to ten minutes, and some are
    kept back and come together."""
    stop, rng = threading.Event(), random.Random(seed)

    def write() -> None:
        held: list[Sample] = []
        with connect(deployment.gateway.grpc, timeout_s=60.0) as client:
            for turn in count():
                is_flood = turn % FLOOD_TURNS == FLOOD_TURNS - 1
                due, held = (held, []) if is_flood else ([], held)
                now_ms = time.time_ns() // 1_000_000
                for job in ("a", "b"):
                    late_ms, is_held = _lateness(rng)
                    sample = job, now_ms - late_ms, float(rng.randint(0, 9))
                    (held if is_held else due).append(sample)
                batch = WriteBatch()
                for job, ts_ms, value in due:
                    batch.add({"__name__": "x", "job": job}, ts_ms, value)
                with suppress(TsdbError):
                    client.write(batch)
                if stop.wait(0.2):
                    return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _lateness(rng: random.Random) -> tuple[int, bool]:
    """(milliseconds by which a sample is late, whether it comes with the next flood)."""
    kind = rng.random()
    if kind < 0.01:
        return rng.randint(20_000, LATE_MAX_MS), False
    if kind < 0.2:
        return rng.randint(1_000, 20_000), False
    return rng.choice((0, 0, 0, 500)), kind < 0.3


def owned(rulers: list[Role]) -> list[set[str]]:
    """Names of the groups of each ruler."""
    return [{one["name"] for one in get(ruler.http, "rules")["groups"]} for ruler in rulers]


def through_ms(ruler: Role, name: str) -> float:
    """The last evaluated time of a group, as stored."""
    found = get(ruler.http, "query", query=f'{{__name__="tsdb_rule_group_evaluated",rule_group=~".*;{name}"}}[1m]')
    return max((round(at * 1000) for one in found["result"] for at, _ in one["values"]), default=0)


def is_settled(ruler: Role) -> bool:
    """No repair waits, although the ruler has looked at the log since the last write."""
    before = ruler.metrics()["tsdb_ruler_evaluations_total"]
    wait_until(lambda: ruler.metrics()["tsdb_ruler_evaluations_total"] > before + 3 * GROUPS, WITHIN_S)
    return ruler.metrics()["tsdb_ruler_repairs_waiting"] == 0


def check_results(http: str) -> None:
    """Each recorded sample is what its expression gives over all samples, and none is missing. Alerts were pending and
    firing at the times of a fold over these samples, and at no others."""
    fired = 0
    for number in range(GROUPS):
        group = f'{{__name__="tsdb_rule_group_evaluated",rule_group=~".*;g{number}"}}'
        times = sorted({at_ms for _, at_ms in samples(http, group)})[:-3]
        before = (number + 1) % GROUPS if number else 0
        for name, expression in (
            (f"sum_{number}", "sum by (job) (x)"),
            (f"mean_{number}", f"avg_over_time(sum_{before}[10s])"),
        ):
            found = {key: value for key, value in samples(http, name).items() if key[1] in times}
            expected = {
                (one["metric"].get("job", ""), at_ms): float(one["value"][1])
                for at_ms in times
                for one in get(http, "query", query=expression, time=at_ms / 1000)["result"]
            }
            assert found == expected, name
        alerts = _alerts(times, samples(http, f"sum_{number}"))
        # An alert may have begun before the first time that the reads above have.
        later = times[0] + FOR_MS
        for state, at in alerts.items():
            stored = samples(http, f'ALERTS{{alertname="High{number}",alertstate="{state}"}}')
            found_at = {key for key in stored if later < key[1] <= times[-1]}
            assert found_at == {key for key in at if key[1] > later}, f"High{number} {state}"
        fired += len(alerts["firing"])
    assert fired > 0


def _alerts(times: list[int], sums: dict[tuple[str, int], float]) -> dict[str, set[tuple[str, int]]]:
    """Job and time at which the alert of each job is pending or firing, by state."""
    found: dict[str, set[tuple[str, int]]] = {"pending": set(), "firing": set()}
    for job in {job for job, _ in sums}:
        active_ms: int | None = None
        for at_ms in times:
            if sums.get((job, at_ms), 0.0) <= 2:
                active_ms = None
                continue
            active_ms = at_ms if active_ms is None else active_ms
            found["firing" if at_ms - active_ms >= FOR_MS else "pending"].add((job, at_ms))
    return found
