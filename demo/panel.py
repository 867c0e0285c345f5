"""The demo's panel: rate, lag, coverage, series and bytes a sample, once a second."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo.standalone import Standalone

COLUMNS = ("samples/s", "samples", "series", "lag ms", "covers s", "sealed B a sample", "partitions ready")


def show_live(console: Console, server: Standalone, seconds: int) -> None:
    """Show the panel for so many seconds; a plain stream gets its last state alone."""
    samples = server.metric("tsdb_replay_samples_total")
    table = _table()
    with Live(table, console=console, refresh_per_second=4, transient=False) as live:
        for _ in range(seconds):
            time.sleep(1.0)
            before, samples = samples, server.metric("tsdb_replay_samples_total")
            table = _table()
            table.add_row(*_row(server, samples - before, samples))
            live.update(table)


def _table() -> Table:
    table = Table()
    for column in COLUMNS:
        table.add_column(column, justify="right")
    return table


def _row(server: Standalone, rate: float, samples: float) -> tuple[str, ...]:
    now = time.time()
    sealed = server.metric("tsdb_store_sealed_samples")
    partitions = server.metric("tsdb_store_partition_ready")
    covers_s = now - server.metric("tsdb_store_coverage_start_timestamp_seconds") / max(partitions, 1)
    return (
        f"{rate:,.0f}",
        f"{samples:,.0f}",
        f"{server.metric('tsdb_store_series'):,.0f}",
        f"{1000 * server.metric('tsdb_store_lag_seconds'):,.0f}",
        f"{covers_s:,.0f}",
        f"{server.metric('tsdb_store_sealed_bytes') / sealed:.2f}" if sealed else "-",
        f"{partitions:.0f}",
    )
