"""The demo's panel shows rate, lag, coverage, series and bytes a sample, once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tsdb.cli.demo.standalone import Standalone

MEMORY = ("samples/s", "samples", "series", "lag ms", "covers s", "sealed B a sample", "partitions ready")
HISTORY = ("samples in memory", "covers s", "windows closed", "chunks", "late samples", "rows loaded", "bytes loaded")


def show_live(console: Console, server: Standalone, until_ms: int) -> None:
    """Show memory until `until_ms`, one row a second. A stream that is not a terminal gets the last row only."""
    samples = server.metric("tsdb_replay_samples_total")
    with Live(_table(MEMORY), console=console, refresh_per_second=4, transient=False) as live:
        while time.time() * 1000 < until_ms:
            time.sleep(1.0)
            before, samples = samples, server.metric("tsdb_replay_samples_total")
            live.update(_table(MEMORY, _row(server, samples - before, samples)))


def show_until(console: Console, server: Standalone, done: Callable[[], bool], seconds: int) -> None:
    """Show the way of samples into history until `done`, for `seconds` at most."""
    give_up_at = time.monotonic() + seconds
    with Live(_table(HISTORY), console=console, refresh_per_second=4, transient=False) as live:
        while not done() and time.monotonic() < give_up_at:
            time.sleep(2.0)
            live.update(_table(HISTORY, _history_row(server)))


def time_of(ms: int) -> str:
    """Time of day, UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(ms / 1000))


def _table(columns: tuple[str, ...], row: tuple[str, ...] = ()) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, justify="right")
    if row:
        table.add_row(*row)
    return table


def _history_row(server: Standalone) -> tuple[str, ...]:
    covers_s = _covers_s(server, server.metric("tsdb_store_partition_ready"))
    return (
        f"{server.metric('tsdb_store_samples'):,.0f}",
        f"{covers_s:,.0f}",
        f"{server.metric('tsdb_chunk_stage_windows_total', 'emitted'):,.0f}",
        f"{server.metric('tsdb_chunk_stage_chunks_total'):,.0f}",
        f"{server.metric('tsdb_chunk_stage_samples_total', 'late'):,.0f}",
        f"{server.metric('tsdb_history_statements_total', 'chunk'):,.0f}",
        f"{server.metric('tsdb_history_written_bytes_total'):,.0f}",
    )


def _row(server: Standalone, rate: float, samples: float) -> tuple[str, ...]:
    sealed = server.metric("tsdb_store_sealed_samples")
    partitions = server.metric("tsdb_store_partition_ready")
    return (
        f"{rate:,.0f}",
        f"{samples:,.0f}",
        f"{server.metric('tsdb_store_series'):,.0f}",
        f"{1000 * server.metric('tsdb_store_lag_seconds'):,.0f}",
        f"{_covers_s(server, partitions):,.0f}",
        f"{server.metric('tsdb_store_sealed_bytes') / sealed:.2f}" if sealed else "-",
        f"{partitions:.0f}",
    )


def _covers_s(server: Standalone, partitions: float) -> float:
    """Seconds from now back to the start of coverage, as the mean of the ready partitions."""
    return time.time() - server.metric("tsdb_store_coverage_start_timestamp_seconds") / max(partitions, 1)
