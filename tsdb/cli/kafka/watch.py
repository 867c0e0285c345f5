"""`tsdb kafka watch`: running reassignments, with bytes and time left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.kafka.access import ACCESS_SETTINGS, MIB, opened_cluster
from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config import CommonSettings
from tsdb.model.errors import Unavailable

if TYPE_CHECKING:
    from tsdb.log.kafka.operations.progress import Look

COLUMNS = ("partition", "replicas", "adding", "removing", "MiB", "MiB left")


@with_settings(CommonSettings, only=ACCESS_SETTINGS)
def watch(
    settings: CommonSettings,
    every: Annotated[
        Milliseconds, typer.Option("--every", parser=duration, metavar="DURATION", help="Time between two looks.")
    ] = "5s",  # type: ignore[assignment]  # parsed as if typed
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Print running reassignments until their end: bytes left, rate and time left.

    All reassignments of the cluster are shown, those of other tools too. JSON is one object in each line.
    """
    # Imported here: help pages do without Kafka's clients.
    from tsdb.log.kafka.operations.progress import look

    with opened_cluster(settings) as admin:
        earlier = None
        while True:
            try:
                seen = look(admin, admin.cluster(), time.monotonic())
            except Unavailable as error:
                if once:
                    raise
                note(error.message)  # A broker restarts, for example. The next look may see it again.
            else:
                _print(seen, earlier, output)
                if once or not seen.copies:
                    return
                earlier = seen
            time.sleep(every.ms / 1000)


def _print(seen: Look, earlier: Look | None, output: str) -> None:
    from tsdb.log.kafka.operations.refusals import duration as duration_words
    from tsdb.log.kafka.operations.refusals import mib

    rate, seconds = seen.rate_since(earlier), seen.seconds_left(earlier)
    if output == "json":
        print_json(
            {
                "reassignments": [
                    {
                        "topic": copy.place.topic,
                        "partition": copy.place.partition,
                        "replicas": list(copy.replicas),
                        "adding": list(copy.adding),
                        "removing": list(copy.removing),
                        "size_bytes": copy.size_bytes,
                        "left_bytes": copy.left_bytes,
                    }
                    for copy in seen.copies
                ],
                "left_bytes": seen.left_bytes,
                "bytes_s": None if rate is None else round(rate),
                "seconds_left": None if seconds is None else round(seconds, 1),
            }
        )
        return
    if not seen.copies:
        note("no reassignment runs")
        return
    print_table(
        COLUMNS,
        [
            (
                str(copy.place),
                ", ".join(map(str, copy.replicas)),
                ", ".join(map(str, copy.adding)),
                ", ".join(map(str, copy.removing)),
                f"{copy.size_bytes / MIB:,.1f}",
                f"{copy.left_bytes / MIB:,.1f}",
            )
            for copy in seen.copies
        ],
        right=("MiB", "MiB left"),
    )
    speed = "" if rate is None else f", {mib(rate)}/s"
    note(f"{mib(seen.left_bytes)} left{speed}" + (f", {duration_words(seconds)} left" if seconds is not None else ""))
