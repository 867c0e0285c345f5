"""Options shared by the jobs that build chunks from the log: range of windows, packs, and settings of the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, instant

if TYPE_CHECKING:
    from spark_backfill.building.options import BuildOptions
    from spark_backfill.places import Places
    from tsdb.model.meta import MetaSettings

From = Annotated[
    Milliseconds, typer.Option("--from", parser=instant, metavar="TIME", help="Start of the first window.")
]
To = Annotated[Milliseconds, typer.Option("--to", parser=instant, metavar="TIME", help="End of the last window.")]
Packs = Annotated[
    list[str] | None,
    typer.Option("--pack", metavar="HEX", help="Only this pack, as in `tsdb chunks dump`; may be repeated."),
]


def build_options(places: Places, shared: MetaSettings) -> BuildOptions:
    """Build options for the current topic of the log."""
    from spark_backfill.building.options import BuildOptions
    from tsdb.log.interface import METRICS
    from tsdb.model.time_set import slice_lengths

    with places.open_log() as log:
        topic_id = log.topic_id(METRICS)
    times = shared.time_set
    return BuildOptions(places, topic_id, times, slice_lengths(times.name), shared.part_bytes_max)


def pack_ids(given: list[str] | None) -> frozenset[int] | None:
    """The ids of the given packs; None for all packs. Raises BadParameter."""
    try:
        return frozenset(int(text, 16) for text in given or ()) or None
    except ValueError as error:
        raise typer.BadParameter(f"a pack is 16 hexadecimal digits: {error}") from None
