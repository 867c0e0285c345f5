"""`tsdb kafka check`: retention, replicas, compaction and disks of a log's topics, against what they must outlast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.kafka.access import Measure, log_topics, opened_cluster
from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration, duration_text
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.topics import COLUMNS, SETTINGS, Replication
from tsdb.config import CommonSettings
from tsdb.log.interface import METRICS
from tsdb.log.topics import REPLICATION, Difference, check_topics, topic_specs

if TYPE_CHECKING:
    from tsdb.log.kafka.operations.admin import ClusterAdmin
    from tsdb.log.kafka.operations.health import Needs


@with_settings(CommonSettings, only=SETTINGS)
def check(
    settings: CommonSettings,
    hold: Annotated[
        Milliseconds | None,
        typer.Option(
            "--hold", parser=duration, metavar="DURATION", help="Hold of stores; by default the least of the time set."
        ),
    ] = None,
    outage: Annotated[
        Milliseconds,
        typer.Option("--outage", parser=duration, metavar="DURATION", help="Longest outage of the chunk stage."),
    ] = "2d",  # type: ignore[assignment]  # parsed as if typed
    rebuild: Annotated[
        Milliseconds, typer.Option("--rebuild", parser=duration, metavar="DURATION", help="Longest rebuild of chunks.")
    ] = "1d",  # type: ignore[assignment]
    replication: Replication = REPLICATION,
    measure: Measure = "3s",  # type: ignore[assignment]
    output: TableOrJson = "table",
) -> None:
    """Check that the topics outlast outages: retention, replicas, compaction, disks; exit code 1 if not.

    `metrics` must keep records for hold + outage + rebuild, by time and, at the measured rate, by bytes.
    """
    # Imported here: help pages do without Kafka's clients.
    from tsdb.log.kafka.operations.health import Needs

    needs = Needs(hold.ms if hold else settings.times.least_hold_ms, outage.ms, rebuild.ms)
    with opened_cluster(settings) as admin:
        found = _settings(settings, needs, replication) + _health(settings, admin, needs, measure.ms / 1000)
    rows = [(item.topic, item.setting, item.got, item.want) for item in found]
    if output == "json":
        needed = {
            "hold_ms": needs.hold_ms,
            "outage_ms": needs.outage_ms,
            "rebuild_ms": needs.rebuild_ms,
            "retention_ms": needs.retention_ms,
        }
        differences = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        print_json({"ok": not rows, "needed": needed, "differences": differences})
    else:
        if rows:
            print_table(COLUMNS, rows)
        parts = f"hold {duration_text(needs.hold_ms)} + outage {duration_text(needs.outage_ms)}"
        total = f"{duration_text(needs.retention_ms)} = {parts} + rebuild {duration_text(needs.rebuild_ms)}"
        note(f"{settings.log_prefix}{METRICS} must keep records for {total}" + ("" if rows else ": all topics do"))
    if rows:
        raise typer.Exit(1)


def _settings(settings: CommonSettings, needs: Needs, replication: int) -> list[Difference]:
    """Settings that differ from the required ones: as `tsdb topics check`, with the needed retention."""
    from tsdb.log.open import open_topics
    from tsdb.roles.log import log_settings

    with open_topics(settings.log, prefix=settings.log_prefix, settings=log_settings(settings)) as topics:
        state = topics.describe(METRICS)
        specs = topic_specs(state.partitions if state else 1, replication=replication, retention_ms=needs.retention_ms)
        return check_topics(topics, specs)


def _health(settings: CommonSettings, admin: ClusterAdmin, needs: Needs, measure_s: float) -> list[Difference]:
    from tsdb.log.kafka.operations.health import health
    from tsdb.log.kafka.operations.throttles import left_throttles

    cluster = admin.cluster(measure_s=measure_s)
    topics = log_topics(settings)
    return health(cluster, topics, settings.log_prefix + METRICS, needs) + left_throttles(admin, cluster, topics)
