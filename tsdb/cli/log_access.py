"""Opens the log for tools, without the checks of topics and `meta` that a role needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from tsdb.cli.topics import SETTINGS
from tsdb.config import CommonSettings
from tsdb.log.interface import METRICS, Log

LOG_SETTINGS = SETTINGS

OnePartition = Annotated[int, typer.Option("--partition", min=0, help="The partition.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition; by default all.")]


@contextmanager
def opened_log(settings: CommonSettings) -> Iterator[Log]:
    """The log of the settings; closed after the block."""
    # Imported here: these modules are otherwise loaded only by a running role.
    from tsdb.log.open import open_log
    from tsdb.roles.log import log_settings

    with open_log(settings.log, prefix=settings.log_prefix, settings=log_settings(settings)) as log:
        yield log


def chosen(log: Log, partition: int | None, topic: str = METRICS) -> Sequence[int]:
    """The given partition of a topic, or all. Raises BadParameter for an unknown one."""
    count = log.partitions(topic)
    if partition is not None and partition >= count:
        raise typer.BadParameter(f"{topic} has partitions 0 to {count - 1}")
    return range(count) if partition is None else [partition]
