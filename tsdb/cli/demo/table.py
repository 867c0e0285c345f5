"""The last lines of the demo: DuckDB reads the Iceberg table that the demo's process has kept beside its history."""

from __future__ import annotations

import importlib
import importlib.util
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from rich.console import Console

if TYPE_CHECKING:
    import duckdb

INSTALL = "with kafka-tsdb[tables] and duckdb installed, the demo ends with its samples in SQL, read by DuckDB"
QUERY = """SELECT metric, count(*) AS samples, avg(value) AS mean
FROM iceberg_scan('{location}')
WHERE metric IN ('node_load1', 'node_load5', 'demo_late')
GROUP BY metric ORDER BY metric"""
COUNT = """
SELECT count(*) FROM iceberg_scan('{location}')
WHERE metric <> 'demo_late' AND epoch_ms(ts) >= {start} AND epoch_ms(ts) < {end}
"""
COMMITTED_WITHIN_S = 60.0


def table_options(scratch: Path) -> list[str]:
    """Options of a process that keeps the table; empty where the packages are missing."""
    if any(importlib.util.find_spec(name) is None for name in ("pyiceberg", "duckdb")):
        return []
    return ["--tables", f"sqlite:///{scratch / 'tables.db'}", "--tables-commit-interval-s", "1"]


def show_table(console: Console, scratch: Path, span: tuple[str, ...], before: bytes) -> bool:
    """Query the table in SQL; True when it has the samples of the span, and where DuckDB cannot read it.

    before: the samples of the span, in a Parquet file.
    """
    console.rule("the same samples as an Iceberg table, read by DuckDB")
    if not table_options(scratch):
        console.print(INSTALL, markup=False)
        return True
    import duckdb  # An optional package.

    with duckdb.connect() as connection:
        try:
            for name in ("avro", "iceberg"):
                _load(connection, name)
        except duckdb.Error as error:
            console.print(f"DuckDB cannot load its extension for Iceberg: {str(error).splitlines()[0]}", markup=False)
            return True
        places = {"location": scratch / "tables-files/tsdb/samples", "start": span[1], "end": span[3]}
        want = pq.read_metadata(io.BytesIO(before)).num_rows
        found = _count(connection, COUNT.format(**places), want)
        console.print(QUERY.format(**places), markup=False, highlight=False)
        for metric, samples, mean in connection.execute(QUERY.format(**places)).fetchall():
            console.print(f"{metric}: {samples} samples, mean {mean:.3f}", highlight=False)
    colour = "green" if found == want else "red"
    console.print(f"[{colour}]the compared range: {found:,} samples in the table, {want:,} before the kill[/]")
    return bool(found == want)


def _count(connection: duckdb.DuckDBPyConnection, query: str, want: int) -> int:
    """The samples of the range, once the last commit has come."""
    give_up_at = time.monotonic() + COMMITTED_WITHIN_S
    while True:
        ((found,),) = connection.execute(query).fetchall()
        if found >= want or time.monotonic() > give_up_at:
            return int(found)
        time.sleep(0.5)


def _load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """DuckDB fetches its extensions, unless packages have them."""
    try:
        package = importlib.import_module(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        connection.install_extension(name)
        connection.load_extension(name)
        return
    (path,) = Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension")
    connection.load_extension(str(path))
