"""Counts false and missed alerts of standalone, of Prometheus, and of vmalert over a Prometheus, which get the same
late samples by remote write.

Some samples of each series come seconds late, in random order. After all have come, each firing alert that a server
has recorded is compared with a fold over all samples at the times at which that server evaluated: false: it fired
there and should not; missed: it should and did not. Prometheus takes samples out of order for half an hour. vmalert
reads a separate Prometheus, without rules, and writes what it records there.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import heapq
import json
import os
import random
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.gateway import ingest_targets as targets
from bench.gateway.ingest_bodies import RemoteWriteBodies
from bench.gateway.ingest_senders import OK, HttpSender
from bench.gateway.ingest_series import WorkloadRequest
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, say
from bench.promql.promql_clients import PromqlConnection
from bench.rules.rules_cost import VMALERT, vmalert
from tsdb.model.labels import canonical_labels, parse_labels
from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.files import RuleGroup, parse_rules
from tsdb.rules.groups import RuleSurroundings, evaluate_group, new_state
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.vectors import vector_query

SERIES, SECONDS, LATE_S = 20, 120, 20.0
LATE_SHARE = 0.3
TURN_S = 0.25
# By default vmalert asks 30 s after the time of an evaluation, and adds a label. Standalone has a grace of 2 s.
VMALERT_FLAGS = ("-rule.evalDelay=2s", "-disableAlertgroupLabel")
SETTLE_S = 75.0  # A group is repaired at most a minute after a late sample.
RULES = """
groups:
- name: late
  interval: 2s
  rules:
  - {record: evaluated, expr: vector(1)}
  - {alert: High, expr: value > 60, for: 4s}
  - {alert: Mean, expr: avg by (job) (value) > 52}
  - {alert: Few, expr: "count by (job) (last_over_time(value[5s])) < 9"}
"""

Sample = tuple[int, int, float]  # Series, time in ms, value.


def main(argv: Sequence[str]) -> dict[str, object]:
    """Steps at which alerts fire, false and missed ones, of each server."""
    parser = argparse.ArgumentParser(prog="bench rules_late", description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--prometheus", action="append", help="path of a control; several may be given; default: as of rules_cost"
    )
    parser.add_argument("--vmalert", default=os.environ.get(VMALERT), help=f"path of vmalert; default: ${VMALERT}")
    parser.add_argument("--quick", action="store_true", help="20 seconds of samples")
    arguments = parser.parse_args(argv)
    seconds = 20 if arguments.quick else arguments.seconds
    binaries = arguments.prometheus or [found for found in (targets.prometheus_binary(),) if found]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-late-")))
        rules = folder / "rules.yaml"
        rules.write_text(RULES)
        flags = ["--rules", str(rules), "--rules-grace-s", "2"]
        servers = [stack.enter_context(targets.standalone(flags))]
        config = f"rule_files: [{rules}]\n"
        for binary in binaries:
            control = stack.enter_context(targets.prometheus(binary, more_config=config))
            servers.append(dataclasses.replace(control, name=Path(binary).name))
        if not binaries:
            say("no `prometheus` binary: no control")
        if arguments.vmalert and binaries:
            control = stack.enter_context(targets.prometheus(binaries[-1]))
            host = control.addresses[REMOTE_WRITE].partition("/")[0]
            stack.enter_context(vmalert(arguments.vmalert, rules, host, VMALERT_FLAGS))
            servers.append(dataclasses.replace(control, name="vmalert"))
        start_ms = int(time.time() * 1000)
        sent = asyncio.run(_send([one.addresses[REMOTE_WRITE] for one in servers], seconds, arguments.seed))
        time.sleep(SETTLE_S)
        (group,) = parse_rules(RULES.encode(), "rules.yaml").groups
        end_ms = start_ms + seconds * 1000
        found = {one.name: _counts(one, group, sent, start_ms, end_ms) for one in servers}
    say(str(found))
    return {"machine": machine(), "seconds": seconds, "late_share": LATE_SHARE, "late_s": LATE_S, **found}


def _labels(number: int) -> bytes:
    return canonical_labels({"__name__": "value", "job": f"job_{number % 2}", "instance": f"host-{number}"})


async def _send(addresses: Sequence[str], seconds: int, seed: int) -> list[Sample]:
    """Send a sample of each series a second, some of them late, to all servers. Returns all samples."""
    rng, encode = random.Random(seed), RemoteWriteBodies([_labels(number) for number in range(SERIES)])
    senders = [HttpSender(address) for address in addresses]
    for sender in senders:
        await sender.open(1)
    levels = [50.0] * SERIES
    waiting: list[tuple[float, Sample]] = []
    sent: list[Sample] = []
    began, at_s = time.time(), 0
    while at_s < seconds or waiting:
        now = time.time()
        while at_s < seconds and began + at_s <= now:
            for number in range(SERIES):
                levels[number] = min(max(levels[number] + rng.uniform(-8, 8), 0.0), 100.0)
                late_s = rng.uniform(1, LATE_S) if rng.random() < LATE_SHARE else 0.0
                sample = number, int((began + at_s) * 1000), round(levels[number])
                heapq.heappush(waiting, (now + late_s, (sample[0], sample[1], float(sample[2]))))
            at_s += 1
        due: list[Sample] = []
        while waiting and waiting[0][0] <= now:
            due.append(heapq.heappop(waiting)[1])
        for row in sorted(due):
            number, ts_ms, value = row
            request = WorkloadRequest(
                (number, 1),
                np.array([number]),
                np.array([0, 1]),
                np.array([ts_ms], np.int64),
                np.array([value], np.float64),
            )
            answers = [await sender.send(0, encode(request)) for sender in senders]
            if answers != [OK] * len(senders):
                raise RuntimeError(f"samples were refused: {answers}")
        sent += due
        await asyncio.sleep(TURN_S)
    for sender in senders:
        await sender.close()
    return sent


def _counts(
    server: IngestTarget, group: RuleGroup, sent: Sequence[Sample], start_ms: int, end_ms: int
) -> dict[str, int]:
    host = server.addresses[REMOTE_WRITE].partition("/")[0]
    steps = sorted({ts_ms for _, ts_ms in _recorded(host, "evaluated", start_ms)})
    steps = [ts_ms for ts_ms in steps if start_ms <= ts_ms < end_ms]
    there = {one for one in _recorded(host, 'ALERTS{alertstate="firing"}', start_ms) if start_ms <= one[1] < end_ms}
    expected = _firing(group, sent, steps)
    return {
        "steps": len(steps),
        "firing": len(expected),
        "false": len(there - expected),
        "missed": len(expected - there),
    }


def _recorded(host: str, selector: str, start_ms: int) -> set[tuple[tuple[tuple[str, str], ...], int]]:
    """Labels and time of each sample of some series since a time."""
    query = urllib.parse.quote(f"{selector}[{int(time.time()) - start_ms // 1000 + 5}s]")
    with PromqlConnection(host) as client:
        answer = json.loads(client.body(f"/api/v1/query?query={query}"))
    return {
        (tuple(sorted(series["metric"].items())), round(float(at) * 1000))
        for series in answer["data"]["result"]
        for at, _ in series["values"]
    }


def _firing(
    group: RuleGroup, sent: Sequence[Sample], steps: Sequence[int]
) -> set[tuple[tuple[tuple[str, str], ...], int]]:
    storage = MemoryStorage()
    for number, ts_ms, value in sorted(sent):
        storage.add(parse_labels(_labels(number)), [(ts_ms, value)])
    found: set[tuple[tuple[tuple[str, str], ...], int]] = set()
    surroundings = RuleSurroundings(vector_query(lambda: storage, DEFAULTS), lambda samples: None)
    state = new_state(group)
    for at_ms in steps:
        state = evaluate_group(group, state, at_ms, 0, surroundings)
        series = set().union(*(rule.series for rule in state.rules))
        found |= {(labels, at_ms) for labels in series if dict(labels).get("alertstate") == "firing"}
    return found
