"""Sends generated small queries over the HTTP API to standalone and, as a control, to Prometheus: instant queries and
short ranges with each function and operator, over some 500 series.

The queries are those of the tests that compare both servers, and both get the same samples. `first` are texts that come
for the first time, `warm` the same ones again, one client with both servers in turn; `8 clients` are warm, one server
after the other. An error of a query is an answer too.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

from bench.gateway import ingest_targets as targets
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, percentiles_ms, say
from bench.promql.promql_clients import PromqlConnection
from bench.promql.promql_table import markdown, number

sys.path.append(str(Path(__file__).parents[2] / "tests"))  # The generator's place.

from support.promql.differential import prometheus, standalone
from support.promql.differential.answers import Query
from support.promql.differential.dataset import LENGTH_MS, StoredSamples, dataset
from support.promql.differential.queries.dialect import RENAMED, dialect_of
from support.promql.differential.queries.generator import Generator
from support.promql.differential.queries.selectors import Times
from support.promql.differential.targets import HttpTarget
from tsdb.model.stale import STALE

COPIES = 5  # Number of series with a label `instance`. All series together are some 500.
CLIENTS = 8
REFUSALS = (400, 422)
VISIBLE_WITHIN_S = 60.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Percentiles in ms of each way for both targets, and the ratios of p50 and p99."""
    arguments = _arguments(argv)
    binary = targets.prometheus_binary(arguments.prometheus)
    base_ms = standalone.recent_base_ms()
    series = [one for single in dataset(base_ms) for one in _copies(single)]
    with ExitStack() as stack:
        flags = ["--enable-feature", ",".join(standalone.FEATURES)]
        found = [stack.enter_context(targets.standalone([*flags, *arguments.flags]))]
        if binary is None:
            say("no `prometheus` binary: no control")
        else:
            flags = ["--enable-feature=" + ",".join(prometheus.FEATURES), "--storage.tsdb.retention.time=100y"]
            found.append(stack.enter_context(targets.prometheus(binary, more_flags=flags)))
        names = [target.name for target in found]
        addresses = [target.addresses[REMOTE_WRITE].partition("/")[0] for target in found]
        for address in addresses:
            prometheus.write(address, series)
            _wait_visible(address, series, base_ms)
        paths = _paths(addresses[-1], base_ms, arguments)
        clients = [stack.enter_context(PromqlConnection(address, REFUSALS)) for address in addresses]
        ways = {
            "first": _in_turn(clients, paths),
            "warm": _in_turn(clients, paths),
            f"{CLIENTS} clients": [_at_once(address, paths) for address in addresses],
        }
    cells = [_cell(way, names, seconds) for way, seconds in ways.items()]
    if arguments.output == "table":
        print(_table(cells, names))
    load = os.getloadavg()
    return {"machine": machine(), "series": len(series), "queries": len(paths), "load_average": load, "cells": cells}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench promql_generated", description=__doc__)
    parser.add_argument("--queries", type=int, help="default: 2000; with --quick 200")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--flag", action="append", default=[], dest="flags", help="of our process, as --flag=--x=1")
    parser.add_argument("--prometheus", help="path of the control's binary; default: from PATH or beside this Python")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="json: no table before the JSON")
    parser.add_argument("--quick", action="store_true", help="few queries")
    found = parser.parse_args(argv)
    found.queries = found.queries or (200 if found.quick else 2000)
    return found


def _copies(one: StoredSamples) -> Iterator[StoredSamples]:
    """A series, and others like it for further instances."""
    yield one
    labels = dict(one.labels)
    for copy in range(1, COPIES) if "instance" in labels else ():
        more = {**labels, "instance": f"{labels['instance'][0]}{copy}:9100"}
        yield StoredSamples(tuple(sorted(more.items())), one.samples)


def _wait_visible(address: str, series: Sequence[StoredSamples], base_ms: int) -> None:
    """Wait until all samples are answered. Raises RuntimeError when late."""
    wanted = sum(value is not STALE for one in series for _, value in one.samples)
    give_up_at = time.monotonic() + VISIBLE_WITHIN_S
    with closing(HttpTarget(address)) as target:
        while True:
            answer = target.query('{__name__=~".+"}[2h]', base_ms + LENGTH_MS)
            if (found := sum(len(row.points) for row in answer.rows)) == wanted:
                return
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"{found} of {wanted} samples came within {VISIBLE_WITHIN_S:g} s")
            time.sleep(0.1)


def _paths(address: str, base_ms: int, arguments: argparse.Namespace) -> list[str]:
    """Requests for queries in the dialect of a server."""
    with closing(HttpTarget(address)) as target:
        dialect = dialect_of(target)
    aligned = not dialect.functions.isdisjoint(RENAMED)
    generator = Generator(arguments.seed, dialect, Times(base_ms, aligned=aligned))
    return [_path(query) for query in generator.queries(arguments.queries)]


def _path(query: Query) -> str:
    if query.step_ms is None:
        return "/api/v1/query?" + urlencode({"query": query.text, "time": query.start_ms / 1000})
    times = {"start": query.start_ms / 1000, "end": query.end_ms / 1000, "step": query.step_ms / 1000}
    return "/api/v1/query_range?" + urlencode({"query": query.text, **times})


def _in_turn(clients: Sequence[PromqlConnection], paths: Sequence[str]) -> list[list[float]]:
    """Seconds of all answers, by client. Both servers see the same state of the machine."""
    seconds: list[list[float]] = [[] for _ in clients]
    for path in paths:
        for client, taken in zip(clients, seconds, strict=True):
            taken.append(_seconds(client, path))
    return seconds


def _at_once(address: str, paths: Sequence[str]) -> list[float]:
    seconds: list[float] = []

    def go(first: int) -> None:
        with PromqlConnection(address, REFUSALS) as client:
            client.read("/-/ready")
            seconds.extend([_seconds(client, path) for path in paths[first::CLIENTS]])

    threads = [threading.Thread(target=go, args=(first,)) for first in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(seconds) != len(paths):
        raise RuntimeError(f"{len(seconds)} of {len(paths)} answers came")
    return seconds


def _seconds(client: PromqlConnection, path: str) -> float:
    began = time.perf_counter()
    client.read(path)
    return time.perf_counter() - began


def _cell(way: str, names: Sequence[str], seconds: Sequence[Sequence[float]]) -> dict[str, object]:
    figures = {name: percentiles_ms(taken) for name, taken in zip(names, seconds, strict=True)}
    cell: dict[str, object] = {"way": way, **figures}
    if len(names) > 1:
        ours, theirs = (figures[name] for name in names)
        cell["ratios"] = {figure: round(ours[figure] / theirs[figure], 2) for figure in ("p50", "p95", "p99")}
    say(str(cell))
    return cell


def _table(cells: Sequence[dict[str, object]], names: Sequence[str]) -> str:
    rows = []
    for cell in cells:
        figures = [cell[name][figure] for name in names for figure in ("p50", "p99")]  # type: ignore[index]
        ratios = cell.get("ratios", {})
        rows.append([str(cell["way"]), *map(number, figures), *(f"{ratios[one]:.2f}" for one in ratios)])  # type: ignore
    heads = ["way", *(f"{name}, {figure}" for name in names for figure in ("p50", "p99"))]
    return markdown([*heads, *(["ratio of p50", "of p95", "of p99"] if len(names) > 1 else [])], rows)
