"""The demo's Spark stage: compare log, chunks and history over closed windows. It needs PySpark and a Java."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from demo.standalone import run_tsdb
from spark_backfill.session import require_java, require_pyspark
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

WINDOWS = 2


def show_spark(console: Console, data_dir: Path, started_ms: int) -> bool:
    """Run `tsdb spark verify` over the first whole windows: True when no chunk is missing, differing or extra.

    Where Spark cannot run, the stage prints the reason and returns True.
    """
    console.rule("Spark: does the log give the chunks that are there, and are they in history?")
    try:
        require_pyspark()
        require_java()
    except ConfigMismatch as error:
        console.print(f"no Spark here, so this is left out: {error.message}")
        return True
    start_ms = ceil_to(started_ms, DEMO.window_ms)
    places = ("--log", f"sqlite:///{data_dir}/log.sqlite", "--history", f"sqlite:///{data_dir}/history.sqlite")
    span = ("--from", str(start_ms), "--to", str(start_ms + WINDOWS * DEMO.window_ms))
    command = ("spark", "verify", *places, "--time-set", "demo", *span, "--master", "local[2]")
    report = json.loads(run_tsdb(*command, "--output", "json"))
    for name, figure in report.items():
        if figure and name != "rows":
            console.print(f"  {name}: {figure}")
    verdict = "[green]nothing is missing, differing or extra[/]" if report["ok"] else "[red]they differ[/]"
    console.print(f"{WINDOWS} windows of {DEMO.window_ms // 1000} s: {verdict}")
    return bool(report["ok"])
