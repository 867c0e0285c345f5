"""`tsdb kafka plan` prints steps that move partitions or leaders, as a table, a plan file, and Kafka's reassignment
JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tsdb.cli.kafka.access import ACCESS_SETTINGS, MIB, Measure, chosen_topics, opened_cluster
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import json_line, note, print_json, print_table
from tsdb.config import CommonSettings

if TYPE_CHECKING:
    from tsdb.log.kafka.operations.plan import Plan

COLUMNS = ("step", "partition", "from", "to", "MiB", "seconds")
THROTTLE_MIB_S = 50.0  # Two fifths of a 1 Gbit/s link.
PARTITIONS_AT_ONCE = 4


@with_settings(CommonSettings, only=ACCESS_SETTINGS)
def plan(
    settings: CommonSettings,
    topic: Annotated[
        list[str], typer.Option("--topic", help="Only this topic of the log, without prefix; may be repeated.")
    ] = [],  # noqa: B006  # Typer copies it.
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics of the cluster, internal ones and those of others too.")
    ] = False,
    drain: Annotated[
        list[int], typer.Option("--drain", help="Broker that holds no replica at the end; may be repeated.")
    ] = [],  # noqa: B006
    drain_rack: Annotated[
        list[str], typer.Option("--drain-rack", help="Rack whose brokers hold no replica at the end; may be repeated.")
    ] = [],  # noqa: B006
    add: Annotated[
        list[int], typer.Option("--add", help="Broker that gets an even share of replicas; may be repeated.")
    ] = [],  # noqa: B006
    spread: Annotated[
        Literal["leaders", "replicas"] | None,
        typer.Option("--spread", help="Even out leaders, which copies nothing, or replicas and leaders."),
    ] = None,
    throttle_mib_s: Annotated[
        float, typer.Option("--throttle-mib-s", min=0.001, help="MiB/s that a broker copies at most, in and out.")
    ] = THROTTLE_MIB_S,
    partitions_at_once: Annotated[
        int, typer.Option("--partitions-at-once", min=1, help="Partitions that one step copies at most.")
    ] = PARTITIONS_AT_ONCE,
    measure: Measure = "3s",  # type: ignore[assignment]  # parsed as if typed
    file: Annotated[
        Path | None, typer.Option("--file", dir_okay=False, help="Also write the plan here, for `tsdb kafka apply`.")
    ] = None,
    step_files: Annotated[
        Path | None,
        typer.Option(
            "--step-files",
            file_okay=False,
            help="Also write each step and its way back here, as kafka-reassign-partitions.sh reads them.",
        ),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Plan a move of partitions or leaders in steps that keep all replicas; changes nothing.

    A plan that cannot be right is refused by name: unknown topics, brokers and racks, a cluster under min ISR, a
    throttle below what producers write, a plan that outlasts retention, disks without free space.
    """
    if not (drain or drain_rack or add or spread):
        raise typer.BadParameter("give a target: --drain, --drain-rack, --add or --spread")
    if topic and all_topics:
        raise typer.BadParameter("give --topic or --all-topics")
    # Imported here: help pages do without Kafka's clients.
    from tsdb.log.kafka.operations.plan import make_plan
    from tsdb.log.kafka.operations.target import Wish

    with opened_cluster(settings) as admin:
        cluster = admin.cluster(measure_s=measure.ms / 1000)
    topics = chosen_topics(settings, cluster, topic, all_topics)
    wish = Wish(topics, frozenset(drain), frozenset(drain_rack), frozenset(add), spread)
    made = make_plan(cluster, wish, round(throttle_mib_s * MIB), partitions_at_once)
    if file is not None:
        file.write_text(json_line(made.to_json()))
    if step_files is not None:
        _write_steps(made, step_files)
    if output == "json":
        print_json(made.to_json())
        return
    _print(made, file)


def _print(made: Plan, file: Path | None) -> None:
    from tsdb.log.kafka.operations.refusals import duration, mib

    rows = [
        (
            str(number),
            str(move.place),
            ", ".join(map(str, move.before)),
            ", ".join(map(str, move.after)),
            f"{move.copied_bytes / MIB:,.1f}",
            f"{step.seconds:,.0f}" if move is step.moves[0] else "",
        )
        for number, step in enumerate(made.steps, 1)
        for move in step.moves
    ]
    if not rows:
        note("nothing to move: the cluster is as asked")
        return
    print_table(COLUMNS, rows, right=("step", "MiB", "seconds"))
    steps = f"{len(made.steps)} step{'s' * (len(made.steps) != 1)}"
    note(f"{steps}, {mib(made.copied_bytes)} to copy, {duration(made.seconds)} at {mib(made.throttle_bytes_s)}/s")
    where = f"`tsdb kafka apply {file}` checks it again, and with --execute runs it" if file else "--file FILE keeps it"
    note(f"nothing is changed; {where}")


def _write_steps(made: Plan, folder: Path) -> None:
    from tsdb.log.kafka.operations.plan import reassignment_json

    folder.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(made.steps, 1):
        (folder / f"step-{number:03}.json").write_text(json.dumps(reassignment_json(step), indent=1) + "\n")
        (folder / f"back-{number:03}.json").write_text(json.dumps(reassignment_json(step, back=True), indent=1) + "\n")
