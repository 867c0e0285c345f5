"""A query of a user in a separate process: it copies samples of the log into the log, under another metric name.

`python -m support.spark.copy_process URL PREFIX CHECKPOINT` runs in many small batches until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ORIGINAL, COPY = "m", "copy"
RECORDS = 60  # Rows of a batch.


def main(url: str, prefix: str, checkpoint: str) -> None:
    """Run the query in small batches until the process is killed."""
    from pyspark.sql import functions as F

    from spark_backfill import register
    from spark_backfill.places import Places
    from support.spark.spark import test_session

    options = Places(url, prefix).options()
    with test_session(Path(checkpoint).parent / "scratch") as spark:
        register(spark)
        reader = spark.readStream.format("tsdb").options(**options, start="earliest", selector=ORIGINAL)
        renamed = F.map_concat(
            F.map_filter("labels", lambda name, _: name != "__name__"), F.create_map(F.lit("__name__"), F.lit(COPY))
        )
        copies = reader.option("max_records_per_batch", RECORDS).load().withColumn("labels", renamed)
        writer = copies.writeStream.format("tsdb").options(**options).option("checkpointLocation", checkpoint)
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
