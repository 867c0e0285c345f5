"""`tsdb demo`: write, read, kill, replay, read the same again, and a page to look at.

When memory has dropped the range, the demo reads it once more, from history, and writes a late sample for it. Where
Spark can run, it takes the chunk stage over (`spark.py`) and compares log, chunks and history. At last DuckDB reads the
samples from an Iceberg table (`table.py`).
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tsdb.cli.demo.panel import show_live, show_until, time_of
from tsdb.cli.demo.spark import show_spark
from tsdb.cli.demo.standalone import Agent, Standalone, run_tsdb
from tsdb.cli.demo.table import show_table, table_options
from tsdb.cli.page import need_page, page_link, show
from tsdb.model.errors import Unavailable
from tsdb.model.time_set import BRIEF, slice_lengths
from tsdb.model.window import ceil_to

# The range has at least this length. It ends where a merged slice ends, because memory drops whole slices.
COMPARED_MS = 2_000
SETTLE_MS = 3_000  # Time from the end of the range to the kill, so that all samples of the range are acknowledged.
EVICTED_WITHIN_S = 240  # Memory holds 45 s with the brief time set; a busy machine drops them later.
LATE_LABELS = {"__name__": "demo_late", "job": "demo", "instance": "late"}
EVERYTHING = '{__name__=~".+"}'
SHOWN = (
    "node_load1",
    'rate(node_cpu_seconds_total{cpu="0",mode=~"user|system|idle"}[5s])',
    "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes",
)
SPANNING = "node_load1"

NEXT = """\
  tsdb standalone --data-dir data    starts a store
  tsdb write FILE                    sends samples of Parquet, CSV or JSON lines
  tsdb agent                         sends metrics of this machine
  tsdb open                          opens the page in a browser"""

console = Console()


def demo(
    stay: Annotated[
        bool,
        typer.Option(
            "--open", help="Open the page in a browser at the end, with metrics of this machine, and stay until Ctrl-C."
        ),
    ] = False,
) -> None:
    """Show the product on this machine's metrics in a minute: write, read, kill, replay, history, a page.

    Runs in a scratch folder that is removed at the end, at the default addresses where they are free. Needs neither
    Java nor Kafka; with Spark and Java it shows the pipeline of a cluster too. Exit code 0 means that every comparison
    held.
    """
    with tempfile.TemporaryDirectory(prefix="tsdb-demo-") as folder:
        scratch = Path(folder)
        with Standalone(scratch, table_options(scratch)) as server:
            held = _stages(scratch, server)
            held = show_page(server, scratch, stay) and held
    console.rule("next")
    console.print(NEXT)
    if not held:
        raise typer.Exit(1)


def _stages(scratch: Path, server: Standalone) -> bool:
    """Run all stages; True when each read gave the samples that were there before the kill."""
    console.rule(f"tsdb standalone --time-set {BRIEF.name}")
    seconds = server.start()
    console.print(f"ready in {seconds:.1f} s: gateway, log, store, chunker, loader, history, querier in one process")
    console.print(f"its page, while the demo runs: http://{server.http}/")
    with Agent(server.grpc, scratch):
        console.rule("tsdb agent: this machine's metrics, every second")
        started_ms = now_ms()
        end_ms = ceil_to(started_ms + COMPARED_MS, slice_lengths(BRIEF.name).large_ms)
        show_live(console, server, end_ms + SETTLE_MS)
        show_queries(server)
        span = ("--start", str(started_ms), "--end", str(end_ms))
        before = everything(server, span)
        console.rule("SIGKILL")
        server.kill()
        console.print("killed: nothing was flushed, nothing was saved; the log is all there is")
        seconds = server.start(on_wait=lambda reason: console.print(f"  not ready: {reason}"))
        replayed = server.metric("tsdb_replay_records_total"), server.metric("tsdb_replay_samples_total")
        console.print(f"replayed {replayed[0]:,.0f} records, {replayed[1]:,.0f} samples; ready after {seconds:.1f} s")
        held = compare("before and after", before, everything(server, span))
        held = held and show_history(server, span, before)
    held = held and show_spark(console, server, scratch, started_ms)
    return held and show_table(console, scratch, span, before)


def show_history(server: Standalone, span: tuple[str, ...], before: bytes) -> bool:
    """Wait until windows have become chunks in history and memory has dropped the range; then query it once more."""
    console.rule("windows of 20 s close, become chunks, are loaded into history; memory keeps 45 s")
    end_ms = int(span[3])
    show_until(console, server, lambda: covers_from_ms(server) >= end_ms, EVICTED_WITHIN_S)
    memory, since = server.metric("tsdb_store_samples"), time_of(covers_from_ms(server))
    console.print(f"memory let go of the first range: it holds {memory:,.0f} samples, and all of them from {since} on")
    answered = server.metric("tsdb_query_partitions_answered_total", 'source="history"')
    held = compare("once more, out of history", before, everything(server, span))
    if server.metric("tsdb_query_partitions_answered_total", 'source="history"') == answered:
        console.print("[red]but history did not answer[/]")
        return False
    return held and show_late(server, int(span[1])) and show_spanning(server, int(span[1]))


def show_late(server: Standalone, at_ms: int) -> bool:
    """Write a sample for a window that closed long ago; True when the next read has it."""
    console.rule("a late sample, for a window that is in history already")
    row = json.dumps({"labels": LATE_LABELS, "ts_ms": at_ms, "value": 42.0})
    run_tsdb("write", "-", "--format", "jsonl", "--address", server.grpc, stdin=row.encode())
    query = ("query", "--raw", LATE_LABELS["__name__"], "--start", str(at_ms), "--end", str(at_ms + 1))
    shown = run_tsdb(*query, "--address", server.grpc).decode()
    print(shown, end="", flush=True)
    found = "42" in shown
    console.print("[green]there in the next read[/]" if found else "[red]NOT there[/]")
    return found


def show_spanning(server: Standalone, start_ms: int) -> bool:
    """Query from `start_ms` to now; True when history and memory answered together."""
    console.rule("one query over history and memory")
    before = server.metric("tsdb_query_partitions_answered_total", 'source="both"')
    span = ("--start", str(start_ms), "--end", str(now_ms()))
    print(run_tsdb("query", "--raw", SPANNING, "--address", server.grpc, *span).decode(), end="", flush=True)
    spanned = server.metric("tsdb_query_partitions_answered_total", 'source="both"') > before
    console.print("[green]answered by both[/]" if spanned else "[red]NOT answered by both[/]")
    return spanned


def covers_from_ms(server: Standalone) -> int:
    """Start of coverage of the partition that covers the shortest time, in ms since the epoch."""
    states = json.loads(run_tsdb("coverage", "--address", server.grpc, "--output", "json"))["partitions"]
    return max(int(state["coverage_start_ms"]) for state in states)


def show_queries(server: Standalone) -> None:
    for expression in SHOWN:
        console.rule(f"tsdb query '{expression}' --last 20s")
        # Printed unchanged, because a terminal cuts a table that is too wide, and rich would wrap it.
        print(run_tsdb("query", expression, "--address", server.grpc, "--last", "20s").decode(), end="", flush=True)


def everything(server: Standalone, span: tuple[str, ...]) -> bytes:
    """All samples of the span, as bytes of a Parquet file."""
    return run_tsdb("query", "--raw", EVERYTHING, "--address", server.grpc, *span, "--output", "parquet")


def compare(what: str, before: bytes, after: bytes) -> bool:
    """Print and return whether both Parquet answers hold the same samples, values bit for bit."""
    import io

    import pyarrow.parquet as pq

    first, second = (pq.read_table(io.BytesIO(data)) for data in (before, after))
    bits = [table["value"].combine_chunks().view("int64") for table in (first, second)]
    rest = [table.drop(["value"]) for table in (first, second)]
    same = bool(first.num_rows > 0 and bits[0].equals(bits[1]) and rest[0].equals(rest[1]))
    console.rule(f"the same query, {what}")
    verdict = "[green]equal, bit for bit[/]" if same else "[red]NOT equal[/]"
    console.print(f"{first.num_rows:,} samples then, {second.num_rows:,} now: {verdict}")
    return same


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def show_page(server: Standalone, scratch: Path, stay: bool) -> bool:
    """Ask for the page and print its address; True when it was answered. With `stay` the server and an agent run until
    Ctrl-C."""
    console.rule("a page at /")
    page = f"http://{server.http}"
    try:
        need_page(page)
    except Unavailable as error:
        console.print(error.message, style="red", markup=False)
        return False
    link = page_link(page, SHOWN, {"range": "5m", "refresh": "2"})
    console.print(link, soft_wrap=True)
    if not stay:
        console.print("It ends with the demo. To look at it: tsdb demo --open")
        return True
    show(link)
    console.print("It is up until Ctrl-C, with metrics of this machine every second.")
    ended = threading.Event()
    before = signal.signal(signal.SIGINT, lambda _number, _frame: ended.set())
    try:
        with Agent(server.grpc, scratch):
            ended.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return True
