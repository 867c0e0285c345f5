"""A standalone process of this store that has the samples of a dataset, received by remote write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from support.promql.differential.dataset import LENGTH_MS, StoredSamples
from support.promql.differential.prometheus import write
from support.promql.differential.targets import HttpTarget
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.model.stale import STALE

HOUR_MS = 3_600_000
VISIBLE_WITHIN_S = 60.0
FEATURES = (
    "promql-experimental-functions",
    "promql-duration-expr",
    "promql-extended-range-selectors",
    "promql-binop-fill-modifiers",
)


def recent_base_ms() -> int:
    """A whole hour at which a dataset begins that ends in the past; older samples cannot be written."""
    return (time.time_ns() // 1_000_000 - LENGTH_MS) // HOUR_MS * HOUR_MS


@contextmanager
def standalone(
    folder: Path, base_ms: int, series: Sequence[StoredSamples], features: Sequence[str] = FEATURES
) -> Iterator[HttpTarget]:
    """A process with the samples of a dataset that begins at base_ms."""
    flags = ["--data-dir", str(folder / "store"), "--enable-feature", ",".join(features)]
    with (
        Role(folder, "standalone", *flags) as role,
        closing(HttpTarget(role.http)) as target,
    ):
        write(role.http, series)
        wanted = sum(value is not STALE for one in series for _, value in one.samples)
        wait_until(lambda: _samples(target, base_ms + LENGTH_MS) == wanted, VISIBLE_WITHIN_S)
        yield target


def _samples(target: HttpTarget, end_ms: int) -> int:
    """Samples of all series, stale markers left out as a selector does."""
    answer = target.query('{__name__=~".+"}[2h]', end_ms)
    return sum(len(row.points) for row in answer.rows)
