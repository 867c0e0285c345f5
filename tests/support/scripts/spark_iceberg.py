"""Spark's own reader of Iceberg, in an environment with PySpark alone: answers reads of one state of a table.

Each line of stdin is a JSON object: `metadata` (path), `where` (a condition in SQL), `columns`, `out` (path of an Arrow
file to write). Each line of stdout is `done`, or the first line of an error.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            samples = spark.read.format("iceberg").load(asked["metadata"])
            found = samples.where(asked["where"]).select(*asked["columns"]).toArrow()
            with pa.OSFile(asked["out"], "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
                writer.write_table(found)
        except Exception as error:
            print(str(error).splitlines()[0], flush=True)
        else:
            print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
