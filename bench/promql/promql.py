"""PromQL over the HTTP API: range queries over 10,000 series x 240 points and small queries, to standalone and to
Prometheus as a control. Both get the same samples by remote write, and their answers are compared once.

Each answer is read to its last byte. `cold` are queries whose selector comes for the first time, `warm` are repeated
ones whose range moves on, `8 clients` are warm. CPU is that of the target's processes, without what they use when no
query comes. With --flow, samples of other series flow into the target that is measured; where the flow falls behind its
rate, as on a busy machine, the CPU is too small.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.gateway import ingest_targets as targets
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import machine, say
from bench.promql.promql_comparison import check_equal
from bench.promql.promql_flow import RemoteWriteFlow
from bench.promql.promql_questions import QUESTIONS, Question
from bench.promql.promql_series import POINTS, STEP_MS, PromqlSeries
from bench.promql.promql_side import WAYS, Side, Way, parsed
from bench.promql.promql_table import table

SERIES = 10_000
FLOW_RATE = 150_000
SECONDS = 3.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Percentiles in ms and CPU ms a query of each question and way, for both targets, and the ratio of their p50."""
    arguments = _arguments(argv)
    end_ms = int(time.time()) * 1000 // STEP_MS * STEP_MS - STEP_MS
    series = PromqlSeries(arguments.series, end_ms)
    with ExitStack() as stack:
        sides = [stack.enter_context(_side(target, series, arguments)) for target in _targets(arguments, stack)]
        questions = [one for one in QUESTIONS if not arguments.question or one.name in arguments.question]
        if len(sides) > 1:
            for question in questions:
                ours, theirs = (side.compared(question, end_ms) for side in sides)
                check_equal(ours, theirs, question.name)
        cells = [_cell(sides, question, way, end_ms, arguments) for question in questions for way in WAYS]
        result: dict[str, object] = {
            "machine": machine(),
            "series": arguments.series,
            "points": POINTS,
            "load_average": os.getloadavg(),
            "flow": {side.target.name: side.flow.report() for side in sides if side.flow is not None},
            "idle_cores": {side.target.name: round(side.idle_cores, 3) for side in sides},
            "rss_mib": {side.target.name: side.target.rss_mib() for side in sides},
            "cells": cells,
        }
    if arguments.output == "table":
        print(table(cells, [side.target.name for side in sides]))
    return result


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench promql", description=__doc__)
    parser.add_argument("--series", type=int, help=f"of each metric; default {SERIES}")
    parser.add_argument("--seconds", type=float, help="of each question, way and target")
    parser.add_argument("--question", action="append", choices=[one.name for one in QUESTIONS], help="only these")
    parser.add_argument(
        "--flow", type=int, nargs="?", const=FLOW_RATE, default=0, help=f"samples/s meanwhile; alone: {FLOW_RATE}"
    )
    parser.add_argument("--target", action="append", choices=(targets.STANDALONE, targets.PROMETHEUS))
    parser.add_argument("--flag", action="append", default=[], dest="flags", help="of our process, as --flag=--x=1")
    return parsed(parser, argv, SERIES, SECONDS)


def _targets(arguments: argparse.Namespace, stack: ExitStack) -> Iterator[IngestTarget]:
    wanted = arguments.target or [targets.STANDALONE, targets.PROMETHEUS]
    if targets.STANDALONE in wanted:
        yield stack.enter_context(targets.standalone(arguments.flags))
    if targets.PROMETHEUS in wanted:
        binary = targets.prometheus_binary(arguments.prometheus)
        if binary is None:
            say("no `prometheus` binary: no control")
        else:
            yield stack.enter_context(targets.prometheus(binary))


@contextmanager
def _side(target: IngestTarget, series: PromqlSeries, arguments: argparse.Namespace) -> Iterator[Side]:
    write = target.addresses[REMOTE_WRITE]
    side = Side(target)
    started = time.monotonic()
    series.send(write)
    side.wait_visible(series, arguments.series)
    say(f"{target.name}: filled in {time.monotonic() - started:.1f} s")
    with ExitStack() as stack:
        if arguments.flow:
            side.flow = stack.enter_context(RemoteWriteFlow(write, arguments.flow))
            side.flow.announce()
        side.measure_idle()
        yield side


def _cell(
    sides: Sequence[Side], question: Question, way: Way, end_ms: int, arguments: argparse.Namespace
) -> dict[str, object]:
    found = {side.target.name: side.measure(question, way, end_ms, arguments.seconds) for side in sides}
    cell: dict[str, object] = {"question": question.name, "way": way.name, "reach_ms": question.reach_ms, **found}
    say(str(cell))
    return cell
