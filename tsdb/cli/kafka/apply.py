"""`tsdb kafka apply`: run a plan, or show the state of each of its steps."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.kafka.access import ACCESS_SETTINGS, MIB, Measure, opened_cluster
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.terminal.signals import stop_signals
from tsdb.config import CommonSettings

if TYPE_CHECKING:
    from tsdb.log.kafka.operations.application import StepProgress, StepState

COLUMNS = ("step", "state", "partitions", "done", "MiB", "seconds")
REPORT_EVERY_S = 5.0


@with_settings(CommonSettings, only=ACCESS_SETTINGS)
def apply(
    settings: CommonSettings,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, allow_dash=True, help="A plan file; - for stdin.")
    ],
    execute: Annotated[
        bool, typer.Option("--execute", help="Run the plan; without it only the state of each step is shown.")
    ] = False,
    throttle_mib_s: Annotated[
        float | None,
        typer.Option("--throttle-mib-s", min=0.001, help="MiB/s that a broker copies at most; by default the plan's."),
    ] = None,
    measure: Measure = "3s",  # type: ignore[assignment]  # parsed as if typed
    output: TableOrJson = "table",
) -> None:
    """Check a plan against the cluster, and with --execute run the steps that are not done.

    Copies are throttled, and the throttles are removed at the end. SIGINT and SIGTERM cancel the step under way. The
    same command continues after any stop.
    """
    # Imported here: help pages do without Kafka's clients.
    from tsdb.log.kafka.operations.application import PlanRun, Stopped
    from tsdb.log.kafka.operations.plan import parse_plan
    from tsdb.model.clock import SystemClock

    plan = parse_plan(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes(), str(file))
    if throttle_mib_s is not None:
        plan = replace(plan, throttle_bytes_s=round(throttle_mib_s * MIB))
    with stop_signals() as stopping, opened_cluster(settings) as admin:
        reports = _Reports()
        application = PlanRun(admin, plan, SystemClock(), stopping=stopping, report=reports.show)
        states = application.check(measure.ms / 1000)
        if execute:
            try:
                states = application.run()
            except Stopped:
                note("stopped: the step under way is cancelled and throttles are removed; the same command continues")
                raise typer.Exit(1) from None
    if output == "json":
        print_json({"executed": execute, "steps": [_row(number, one) for number, one in enumerate(states, 1)]})
        return
    print_table(COLUMNS, [list(_row(number, one).values()) for number, one in enumerate(states, 1)], right=COLUMNS[2:])
    if not execute:
        note("nothing is changed; --execute runs the steps that are not done")


def _row(number: int, one: StepState) -> dict[str, object]:
    return {
        "step": number,
        "state": one.state.value,
        "partitions": len(one.moves),
        "done": sum(state.value == "done" for state in one.moves),
        "mib": round(one.step.copied_bytes / MIB, 1),
        "seconds": round(one.step.seconds, 1),
    }


class _Reports:
    """Lines of progress on stderr: at most one in `REPORT_EVERY_S`, and one at the end of each step."""

    def __init__(self) -> None:
        self._due = 0.0

    def show(self, progress: StepProgress) -> None:
        from tsdb.log.kafka.operations.refusals import duration, mib

        now = time.monotonic()
        if now < self._due and progress.done < progress.moves:
            return
        self._due = now + REPORT_EVERY_S
        time_left = f", {duration(progress.seconds_left)} left" if progress.seconds_left is not None else ""
        note(
            f"step {progress.number} of {progress.steps}: {progress.done} of {progress.moves} partitions done, "
            f"{mib(progress.left_bytes)} to copy{time_left}"
        )
