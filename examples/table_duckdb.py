"""DuckDB over the Iceberg table that a loader keeps: means of each series by hour, in SQL.

pip install 'kafka-tsdb[tables]' duckdb
python examples/table_duckdb.py sqlite:////var/lib/tsdb/tables.db
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

HOURLY = """
SELECT metric, labels['room'] AS room, date_trunc('hour', ts) AS hour, count(*) AS samples, avg(value) AS mean
FROM iceberg_scan(?)
WHERE metric = 'example_room_celsius' AND ts >= now() - INTERVAL 7 DAY
GROUP BY ALL
ORDER BY ALL
"""


def load_iceberg(connection: duckdb.DuckDBPyConnection) -> None:
    """DuckDB fetches its extensions, unless packages have them: duckdb-extension-avro and duckdb-extension-iceberg."""
    for name in ("avro", "iceberg"):
        try:
            package = importlib.import_module(f"duckdb_extension_{name}")
        except ModuleNotFoundError:
            connection.install_extension(name)
            connection.load_extension(name)
            continue
        (path,) = Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension")
        connection.load_extension(str(path))


def main(catalog_url: str) -> None:
    catalog = SqlCatalog("tsdb", uri=catalog_url)
    metadata = catalog.load_table("tsdb.samples").metadata_location  # `tsdb tables check` prints it too.
    catalog.close()
    with duckdb.connect() as connection:
        load_iceberg(connection)
        for metric, room, _, samples, mean in connection.execute(HOURLY, [metadata]).fetchall():
            print(f"{metric} {room}: {samples} samples, mean {mean:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
