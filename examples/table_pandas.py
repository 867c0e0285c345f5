"""pandas over the Iceberg table that a loader keeps: one column for each series.

pip install 'kafka-tsdb[tables,pandas]'
python examples/table_pandas.py sqlite:////var/lib/tsdb/tables.db
"""

from __future__ import annotations

import sys

import pandas as pd
from pyiceberg.catalog.sql import SqlCatalog


def main(catalog_url: str) -> None:
    catalog = SqlCatalog("tsdb", uri=catalog_url)
    table = catalog.load_table("tsdb.samples")
    # Conditions on metric, series_id and ts skip whole files.
    since = (pd.Timestamp.now(tz="UTC") - pd.Timedelta(days=7)).isoformat()
    scan = table.scan(
        row_filter=f"metric == 'example_room_celsius' and ts >= '{since}'", selected_fields=("labels", "ts", "value")
    )
    frame = scan.to_pandas()
    catalog.close()
    frame["room"] = [dict(labels)["room"] for labels in frame["labels"]]
    print(frame.pivot(index="ts", columns="room", values="value").describe().loc[["count", "min", "max"]])


if __name__ == "__main__":
    main(sys.argv[1])
