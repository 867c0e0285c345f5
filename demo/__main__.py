"""`make demo`: write, read, kill, replay, read the same again. Exit 0 only if everything shown held."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from demo.panel import show_live
from demo.standalone import Agent, Standalone, run_tsdb

WRITE_S = 20  # Live writing before the kill: ten small slices of the demo time set, two merged ones.
SETTLE_MS = 3_000  # The compared range ends this long before the kill: everything in it was acknowledged.
EVERYTHING = '{__name__=~".+"}'
SHOWN = (
    "node_load1",
    'node_cpu_seconds_total{cpu="0",mode=~"user|system|idle"}',
    "node_memory_MemAvailable_bytes",
)

console = Console()


def main() -> int:
    """The whole demo, in a scratch folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="tsdb-demo-") as folder:
        scratch = Path(folder)
        with Standalone(scratch) as server:
            held = demo(scratch, server)
    console.rule("next")
    console.print(
        "  README.md               what it is, and when not to use it\n"
        "  make test               every claim, on real servers\n"
        "  make stack-up           a Kafka broker on this machine; the README shows how to run on it\n"
        "  docs/architecture/      how a record becomes an answer"
    )
    return 0 if held else 1


def demo(scratch: Path, server: Standalone) -> bool:
    """Returns whether the samples read after the kill are those read before."""
    console.rule("tsdb standalone --time-set demo")
    console.print(f"ready in {server.start():.1f} s: gateway, log, store in one process; data in a scratch folder")
    with Agent(server.grpc, scratch):
        console.rule("tsdb agent: this machine's metrics, every second")
        started_ms = now_ms()
        show_live(console, server, WRITE_S)
        show_queries(server)
        end_ms = now_ms() - SETTLE_MS
        span = ("--start", str(started_ms), "--end", str(end_ms))
        before = everything(server, span)
        console.rule("SIGKILL")
        server.kill()
        console.print("killed: nothing was flushed, nothing was saved; the log is all there is")
        seconds = server.start(on_wait=lambda reason: console.print(f"  not ready: {reason}"))
        replayed = server.metric("tsdb_replay_records_total"), server.metric("tsdb_replay_samples_total")
        console.print(f"replayed {replayed[0]:,.0f} records, {replayed[1]:,.0f} samples; ready after {seconds:.1f} s")
        after = everything(server, span)
    return compare(before, after)


def show_queries(server: Standalone) -> None:
    """Queries as a person would ask them."""
    for selector in SHOWN:
        console.rule(f"tsdb query '{selector}' --last 20s")
        # As it came: a table wider than the terminal is better cut by it than wrapped by us.
        print(run_tsdb("query", selector, "--address", server.grpc, "--last", "20s").decode(), end="", flush=True)


def everything(server: Standalone, span: tuple[str, ...]) -> bytes:
    """All samples of the span, as Parquet."""
    return run_tsdb("query", EVERYTHING, "--address", server.grpc, *span, "--output", "parquet")


def compare(before: bytes, after: bytes) -> bool:
    """Whether both answers hold the same samples, bit for bit; says so."""
    import io

    import pyarrow.parquet as pq

    first, second = (pq.read_table(io.BytesIO(data)) for data in (before, after))
    bits = [table["value"].combine_chunks().view("int64") for table in (first, second)]
    rest = [table.drop(["value"]) for table in (first, second)]
    same = bool(first.num_rows > 0 and bits[0].equals(bits[1]) and rest[0].equals(rest[1]))
    console.rule("the same query, before and after")
    verdict = "[green]equal, bit for bit[/]" if same else "[red]NOT equal[/]"
    console.print(f"{first.num_rows:,} samples before, {second.num_rows:,} after: {verdict}")
    return same


def now_ms() -> int:
    """Wall clock, ms."""
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
