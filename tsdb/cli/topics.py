"""`tsdb topics`: create and check the topics of a log."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration, duration_text
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config import CommonSettings
from tsdb.log.interface import METRICS
from tsdb.log.topics import (
    REPLICATION,
    TOPIC,
    Difference,
    TopicSpec,
    check_topics,
    create_topics,
    how_to_create,
    topic_specs,
)
from tsdb.model.errors import ConfigMismatch

# The settings of the log, and those that all its users must share.
SETTINGS = (
    *("config", "log", "log_prefix", "time_set", "placement_labels"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
)
PARTITIONS_MAX = 10_000  # More is a mistake, since each partition takes memory in every store and chunker.
KAFKA = "kafka://"  # An embedded log has no brokers and no replicas.
COLUMNS = ("topic", "setting", "got", "want")

Replication = Annotated[int, typer.Option("--replication", min=1, help="Replicas of each topic.")]
Retention = Annotated[
    Milliseconds,
    typer.Option(
        "--retention",
        parser=duration,
        metavar="DURATION",
        help="Retention of the log: above hold + longest outage of the chunk stage + longest rebuild.",
    ),
]

topics = Commands("The topics of a log.")


@topics.command("create")
@with_settings(CommonSettings, only=SETTINGS)
def create(
    settings: CommonSettings,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", min=1, max=PARTITIONS_MAX, help="Partitions of the log; they cannot be changed later."
        ),
    ],
    replication: Replication = REPLICATION,
    retention: Retention = "5d",  # type: ignore[assignment]  # parsed as if typed
    output: TableOrJson = "table",
) -> None:
    """Create missing topics and write `meta`; an existing topic that differs is an error.

    Prints each topic with its settings, and the next commands; JSON has made, topics and partitions.
    """
    # Imported here: these modules are otherwise loaded only by a running role.
    from tsdb.log.meta import ensure_meta
    from tsdb.log.open import open_log, open_topics
    from tsdb.roles.log import log_settings, meta_settings

    access = log_settings(settings)
    brokers = settings.log.startswith(KAFKA)
    specs = topic_specs(partitions, replication=_replicas(settings, replication), retention_ms=retention.ms)
    if brokers and replication < REPLICATION:
        note(f"warning: replicas of each topic: {replication}: a lost broker may lose data; {REPLICATION} is safe")
    with open_topics(settings.log, prefix=settings.log_prefix, settings=access) as admin:
        made = create_topics(admin, specs)
    with open_log(settings.log, prefix=settings.log_prefix, settings=access) as log:
        ensure_meta(log, meta_settings(settings, partitions))
    if output == "json":
        print_json({"made": made, "topics": [spec.name for spec in specs], "partitions": partitions})
        return
    for spec in specs:
        print(described(spec, made=spec.name in made, brokers=brokers))
    print(f"shared by all roles: time set {settings.time_set}, placement labels {', '.join(settings.placement_labels)}")
    where = f"--log {settings.log}" + (f" --log-prefix {settings.log_prefix}" if settings.log_prefix else "")
    print(f"next: tsdb gateway {where} takes writes; tsdb store {where} answers reads")


def described(spec: TopicSpec, *, made: bool, brokers: bool) -> str:
    """A line about a topic, with replicas only for a log with brokers."""
    parts = [f"{spec.partitions} partition{'s' * (spec.partitions != 1)}"]
    if brokers:
        parts.append(f"{spec.replication} replica{'s' * (spec.replication != 1)} each")
    if "compact" in spec.exact["cleanup.policy"]:
        parts.append("the newest record of each key kept")
    if "retention.ms" in spec.least:
        parts.append(f"records kept for {duration_text(spec.least['retention.ms'])}")
    return f"{'made' if made else 'found'} topic {spec.name}: {', '.join(parts)}"


@topics.command("check")
@with_settings(CommonSettings, only=SETTINGS)
def check(
    settings: CommonSettings,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Required number; by default the number of the log.")
    ] = None,
    replication: Replication = REPLICATION,
    retention: Retention = "5d",  # type: ignore[assignment]
    output: TableOrJson = "table",
) -> None:
    """List every wrong setting of the topics and of `meta`; exit code 1 when there is one."""
    found = _differences(settings, partitions, replication, retention.ms)
    rows = [(item.topic, item.setting, item.got, item.want) for item in found]
    if output == "json":
        print_json({"ok": not rows, "differences": [dict(zip(COLUMNS, row, strict=True)) for row in rows]})
    elif rows:
        print_table(COLUMNS, rows)
    else:
        note("all topics are correct")
    if rows:
        raise typer.Exit(1)


def _replicas(settings: CommonSettings, replication: int) -> int:
    """Replicas of each topic; an embedded log has one copy of its files, whatever is given."""
    return replication if settings.log.startswith(KAFKA) else 1


def _differences(
    settings: CommonSettings, partitions: int | None, replication: int, retention_ms: int
) -> list[Difference]:
    from tsdb.log.meta import check_meta
    from tsdb.log.open import open_log, open_topics
    from tsdb.roles.log import log_settings, meta_settings

    access = log_settings(settings)
    with open_topics(settings.log, prefix=settings.log_prefix, settings=access) as admin:
        state = admin.describe(METRICS)
        count = partitions or (state.partitions if state else 1)
        specs = topic_specs(count, replication=_replicas(settings, replication), retention_ms=retention_ms)
        found = check_topics(admin, specs)
    if any(item.setting == TOPIC for item in found):
        if state is not None:
            note(how_to_create(found, specs))
        if state is None:
            # Notes the missing file of an embedded log; sends nothing to a broker.
            try:
                open_log(settings.log, prefix=settings.log_prefix, settings=access).close()
            except ConfigMismatch as error:
                note(error.message)
        return found  # Without its topics the log cannot be opened to check `meta`.
    with open_log(settings.log, prefix=settings.log_prefix, settings=access) as log:
        try:
            check_meta(log, meta_settings(settings, count))
        except ConfigMismatch as error:
            found.append(Difference("meta", "settings", error.message, "as given here"))
    return found
