"""PySpark in a notebook: import a file, compute with its samples, and look after history. Needs `kafka-tsdb[spark]`.

TSDB_LOG=kafka://10.0.0.5:9092 TSDB_HISTORY=cassandra://10.0.0.7/tsdb python examples/spark_notebook.py

The cells are those of Jupyter and of VS Code. As a program they run from the top.
"""

# %% Connect: addresses from TSDB_LOG and TSDB_HISTORY, as for the commands
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_backfill

spark = SparkSession.builder.appName("notebook").getOrCreate()
spark_backfill.register(spark)
db = spark_backfill.connect()  # Or: connect(log="kafka://...", history="cassandra://...")
print(db)

# %% A file: one line for each reading of two sensors
folder = Path(tempfile.mkdtemp(prefix="notebook-"))
times = [f"2020-02-{day:02d}T{hour:02d}:00:00Z" for day in (1, 2) for hour in range(24)]
lines = [f"{sensor},{at},{20 + at.count('0')}" for sensor in ("attic", "cellar") for at in times]
(folder / "readings.csv").write_text("\n".join(["sensor,at,degrees", *lines]))

# %% Import it. A second run with the same job id changes nothing
imported = spark_backfill.import_files(
    spark,
    db,
    folder / "readings.csv",
    format="csv",
    labels="",
    label_columns={"sensor": "sensor"},
    constants={"__name__": "room_temperature", "job": "notebook"},
    time="at",
    time_unit="iso",
    value="degrees",
    job_id="notebook-readings",
)
print(imported)
assert imported.ok, imported.rows

# %% Compute with the samples: a day's mean and range
samples = spark.read.format("tsdb").options(**db.options, selector="room_temperature", wide="sensor").load()
days = samples.groupBy("sensor", F.date_trunc("day", "ts").alias("day")).agg(
    F.mean("value").alias("mean"), (F.max("value") - F.min("value")).alias("range")
)
days.orderBy("sensor", "day").show()

# %% Which windows would merge-late fold? Nothing is written without apply=True
plan = spark_backfill.merge_late(spark, db)
print(f"{plan.to_fold} of {plan.chunks} chunks are due; {plan.per_chunk} fragments a chunk")

# %% Copy one day as Parquet. start is included, end is excluded
copy = spark_backfill.export(
    spark, db, folder / "copy", "room_temperature", start="2020-02-01", end="2020-02-02", partial=True
)
print(f"{copy.samples} samples in {copy.folder}")
