"""The table of commands. A new command is one row here and one function, or one group, in its module.

A module is imported only when its command runs or its help is printed, so that `tsdb --help` starts fast. A test
compares each text with the first sentence of the command's own help.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A command or a group of `tsdb`. place: "module:name" of its function, or of its Commands."""

    name: str
    place: str
    text: str

    def load(self) -> Any:  # A function, or a Commands.
        """Import the module. Returns the function or the group."""
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)


# Help pages, docs/cli.md and completions list the commands in this order.
SECTIONS: dict[str, tuple[Row, ...]] = {
    "Start here": (
        Row(
            "standalone",
            "tsdb.cli.roles:standalone",
            "Run every role in one process over an embedded log, without Kafka.",
        ),
        Row(
            "demo",
            "tsdb.cli.demo.command:demo",
            "Show the product on this machine's metrics in a minute: write, read, kill, replay, history, a page.",
        ),
        Row(
            "open",
            "tsdb.cli.page:open_page",
            "Open the explorer in a browser and print its link, which others can open too.",
        ),
    ),
    "Write": (
        Row("write", "tsdb.cli.write:write", "Write samples from FILE, in the order of their times."),
        Row(
            "import",
            "tsdb.cli.import_samples:import_samples",
            "Import samples older than the shortest hold and a day into history, from blocks of Prometheus or from"
            " files.",
        ),
        Row(
            "agent",
            "tsdb.cli.agent.command:agent",
            "Write metrics of this host, with the names of the node exporter, and of endpoints, once an interval.",
        ),
    ),
    "Read": (
        Row(
            "query",
            "tsdb.cli.query.command:query",
            "Print the value of a PromQL expression at one time or over a range, or with --raw samples; exact or an"
            " error.",
        ),
        Row(
            "series",
            "tsdb.cli.series:series",
            "List matching series with the times of their first and last sample; with a range, only those with a sample"
            " in it.",
        ),
        Row(
            "labels",
            "tsdb.cli.series:labels",
            "List label names, or the values of one label; with a range, also those of series in history.",
        ),
        Row(
            "watch",
            "tsdb.cli.watch:watch",
            "Print samples of matching series as the store applies them, each once; reconnects after a failure.",
        ),
    ),
    "Look after a server": (
        Row(
            "status",
            "tsdb.cli.coverage:status",
            "Print the state of partitions: ready or the reason, lag, content and memory; and the progress of history.",
        ),
        Row(
            "coverage",
            "tsdb.cli.coverage:coverage",
            "Print the coverage of partitions: complete from `covers from` on, all records from `since offset` on.",
        ),
        Row(
            "cardinality",
            "tsdb.cli.cardinality:cardinality",
            "Print the largest groups of series in memory, with exact counts: by metric, label, label pair or source.",
        ),
        Row(
            "queries",
            "tsdb.cli.query.running:queries",
            "List the running queries of a querier, over HTTP and gRPC, or cancel one.",
        ),
        Row("holes", "tsdb.cli.holes:holes", "Named losses."),
        Row("config", "tsdb.cli.config_show:config", "Settings."),
        Row(
            "completion",
            "tsdb.cli.options.completion:completion",
            "Print a script that completes `tsdb` in a shell.",
        ),
    ),
    "Roles of a cluster": (
        Row("gateway", "tsdb.cli.roles:gateway", "Accept samples; OK means that the log has them."),
        Row("store", "tsdb.cli.roles:store", "Replay the log into memory and answer reads."),
        Row("chunker", "tsdb.cli.roles:chunker", "Turn the log into chunks, window by window."),
        Row("loader", "tsdb.cli.roles:loader", "Write chunks and series into history; the only writer of it."),
        Row("querier", "tsdb.cli.roles:querier", "Answer reads from several stores and history."),
        Row(
            "ruler",
            "tsdb.cli.roles:ruler",
            "Evaluate Prometheus's rule files over stores and history, and again for late samples; write what they"
            " record.",
        ),
        Row(
            "canary",
            "tsdb.cli.roles:canary",
            "Write known samples and check that every path of a read returns them: freshness and exactness as metrics.",
        ),
    ),
    "Operate a cluster": (
        Row(
            "plan",
            "tsdb.cli.plan.command:plan",
            "Print how many processes, cores and disks a load needs, from measured figures.",
        ),
        Row("topics", "tsdb.cli.topics:topics", "The topics of a log."),
        Row(
            "kafka",
            "tsdb.cli.kafka.command:kafka",
            "Operations on the Kafka cluster of a log: move partitions and leaders, and check retention.",
        ),
        Row("log", "tsdb.cli.log_command:log_command", "Records and offsets of the log."),
        Row("chunks", "tsdb.cli.chunks:chunks", "The chunks topic and the stage that fills it."),
        Row(
            "dlq",
            "tsdb.cli.dlq:dlq",
            "Dead letters: records that the loader, or any parallel consumer, gave up.",
        ),
        Row("history", "tsdb.cli.history.command:history", "History, the store of chunks."),
        Row("tables", "tsdb.cli.tables:tables", "The Iceberg table that other programs read."),
        Row("rules", "tsdb.cli.rules:rules", "Prometheus's rule files: recording and alerting rules."),
        Row("shadow", "tsdb.cli.shadow:shadow", "Shadow reads of a querier."),
        Row(
            "spark",
            "tsdb.cli.spark.command:spark",
            "Spark jobs over large amounts of data; on any Spark master, by default on this machine.",
        ),
        Row(
            "await-release",
            "tsdb.cli.await_release:await_release",
            "Wait until no process behind HOST:PORT runs an older release than this one.",
        ),
    ),
}
COMMANDS = tuple(row for rows in SECTIONS.values() for row in rows)
