"""`tsdb agent` writes live metrics of this host and of Prometheus endpoints."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from dataclasses import asdict
from types import FrameType
from typing import Annotated

import typer

from tsdb.cli.agent.host import HostSource
from tsdb.cli.agent.measuring import run
from tsdb.cli.agent.sample import SampleSource
from tsdb.cli.agent.scrape import ScrapeRules, ScrapeSource, parse_target, refusals
from tsdb.cli.agent.sender import BatchSender
from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.connection import Connection, connected
from tsdb.cli.terminal.output import print_json, print_table
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest
from tsdb.ops.logs import configure_logging

SCRAPE_TIMEOUT_MAX_S = 10.0  # The default of Prometheus. The timeout is at most one interval.
LAST_WAIT_SLACK_S = 1.0  # Extra wait, so that scrapes of the last round end by their own timeout.


@connected()
def agent(
    connection: Connection,
    interval: Annotated[
        Milliseconds, typer.Option("--interval", parser=duration, metavar="DURATION", help="Time between two rounds.")
    ] = "1s",  # type: ignore[assignment]  # parsed as if typed
    scrape: Annotated[
        list[str] | None,
        typer.Option("--scrape", metavar="[JOB=]URL", help="Also scrape this Prometheus endpoint; may be repeated."),
    ] = None,
    honor_labels: Annotated[
        bool,
        typer.Option(
            "--honor-labels/--no-honor-labels",
            help="Labels job and instance of a page win over those of its target; else they become exported_*.",
        ),
    ] = False,
    honor_timestamps: Annotated[
        bool, typer.Option("--honor-timestamps/--no-honor-timestamps", help="Keep the times of a page.")
    ] = True,
    sample_limit: Annotated[
        int,
        typer.Option(
            "--sample-limit",
            min=0,
            metavar="N",
            help="Samples of a page; 0: no limit. A page above a limit is a failed scrape.",
        ),
    ] = 0,
    label_limit: Annotated[
        int,
        typer.Option(
            "--label-limit",
            min=0,
            metavar="N",
            help="Labels of a scraped series, with name, job and instance; 0: no limit.",
        ),
    ] = 0,
    label_name_length_limit: Annotated[
        int,
        typer.Option(
            "--label-name-length-limit",
            min=0,
            metavar="BYTES",
            help="Bytes of a label name of a scraped series; 0: no limit.",
        ),
    ] = 0,
    label_value_length_limit: Annotated[
        int,
        typer.Option(
            "--label-value-length-limit",
            min=0,
            metavar="BYTES",
            help="Bytes of a label value of a scraped series; 0: no limit.",
        ),
    ] = 0,
    body_size_limit: Annotated[
        int, typer.Option("--body-size-limit", min=0, metavar="BYTES", help="Bytes of a page, unpacked; 0: 64 MiB.")
    ] = 0,
    target_limit: Annotated[
        int,
        typer.Option(
            "--target-limit",
            min=0,
            metavar="N",
            help="Targets of a job; above it none of them is scraped. 0: no limit.",
        ),
    ] = 0,
    native_histograms: Annotated[
        bool,
        typer.Option(
            "--native-histograms/--no-native-histograms",
            help="Ask for the protobuf format: native histograms, and when counters began. The gateway must keep them.",
        ),
    ] = False,
    host: Annotated[bool, typer.Option("--host/--no-host", help="Measure this host.")] = True,
    job: Annotated[str, typer.Option("--job", help="Label job of the host's series.")] = "agent",
    instance: Annotated[
        str | None, typer.Option("--instance", help="Label instance of the host's series; by default the host's name.")
    ] = None,
    for_: Annotated[
        Milliseconds | None,
        typer.Option("--duration", parser=duration, metavar="DURATION", help="End after this; by default with Ctrl-C."),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Write metrics of this host, with the names of the node exporter, and of endpoints, once an interval.

    While the gateway is away, up to 600 batches and 2,000,000 samples are kept, and sent later; above that the oldest
    batches are dropped. A target that is down has `up` 0, and one line on stderr at the start and at the end of its
    outage; it delays no other target. Pages are read by Prometheus's rules, and a series that vanishes gets a stale
    marker: see docs/agent.md. At the end prints samples, refused, dropped, requests and failures.
    """
    configure_logging(json=False, level="info")
    timeout_s = min(SCRAPE_TIMEOUT_MAX_S, interval.ms / 1000)
    rules = ScrapeRules(
        honor_labels=honor_labels,
        honor_timestamps=honor_timestamps,
        sample_limit=sample_limit,
        label_limit=label_limit,
        label_name_length_limit=label_name_length_limit,
        label_value_length_limit=label_value_length_limit,
        body_size_limit=body_size_limit,
        target_limit=target_limit,
        native_histograms=native_histograms,
    )
    own = [HostSource(job, instance or socket.gethostname())] if host else []
    sources: list[SampleSource] = [*own, *_scrapes(timeout_s, scrape or [], rules)]
    if not sources:
        raise typer.BadParameter("nothing to measure: --no-host without --scrape")
    duration_ms = None if for_ is None else for_.ms
    with connection.open() as client:
        sender = BatchSender(client)
        sender.start()
        with _ends_quietly():
            run(
                sources,
                sender,
                SystemClock(),
                interval_ms=interval.ms,
                duration_ms=duration_ms,
                last_wait_s=timeout_s + LAST_WAIT_SLACK_S,
            )
        sender.close()
        sender.join(connection.timeout.ms / 1000)
    summary = asdict(sender.sent)
    if output == "json":
        print_json(summary)
    else:
        print_table(list(summary), [list(summary.values())], right=summary)
    if sender.sent.dropped or sender.sent.refused:
        raise typer.Exit(1)


def _scrapes(timeout_s: float, texts: list[str], rules: ScrapeRules) -> list[ScrapeSource]:
    try:
        targets = [parse_target(text) for text in texts]
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None
    refused = refusals(targets, rules.target_limit)
    return [ScrapeSource(target, timeout_s, rules, refusal=refused.get(target.job)) for target in targets]


@contextlib.contextmanager
def _ends_quietly() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block without an error, so that the samples measured so far are still sent."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
