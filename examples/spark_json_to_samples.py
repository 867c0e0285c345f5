"""PySpark: convert JSON messages to samples: {"sensor": "a7", "at": "2026-01-01T12:00:00Z", "kelvin": 293.4}

    python examples/spark_json_to_samples.py /data/json kafka://10.0.0.5:9092 s3a://bucket/checkpoints/json
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0 examples/spark_json_to_samples.py \
        kafka://10.0.0.9:9092/sensors kafka://10.0.0.5:9092 s3a://bucket/checkpoints/json

The first form reads files as they appear in a folder. The second reads a Kafka topic; Spark's Kafka source is not a
part of PySpark. Messages that are not samples are counted by reason in the driver's log and left out.
"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_backfill

MESSAGE = "sensor string, at timestamp, kelvin double"


def messages(spark: SparkSession, place: str) -> DataFrame:
    """Messages as text, in the column `value`. place: a folder, or kafka://HOST:PORT/TOPIC."""
    if not place.startswith("kafka://"):
        return spark.readStream.text(place)
    url = urlsplit(place)
    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", url.netloc)
    return raw.option("subscribe", url.path.strip("/")).load().selectExpr("CAST(value AS string) AS value")


def samples_of(raw: DataFrame) -> DataFrame:
    """One sample for each message. Text that is not such JSON gives nulls, which the sink counts and leaves out."""
    fields = raw.select(F.from_json("value", MESSAGE).alias("message")).select("message.*")
    labels = F.create_map(
        F.lit("__name__"),
        F.lit("temperature_celsius"),
        F.lit("job"),
        F.lit("sensors"),
        F.lit("instance"),
        F.col("sensor"),
    )
    return fields.select(labels.alias("labels"), F.col("at").alias("ts"), (F.col("kelvin") - 273.15).alias("value"))


def json_to_samples(spark: SparkSession, place: str, log: dict[str, str], checkpoint: str) -> DataStreamWriter:
    """The query, not started. log: options of the log to write into."""
    spark_backfill.register(spark)
    return (
        samples_of(messages(spark, place))
        .writeStream.format("tsdb")
        .options(**log, on_refused="drop")
        .option("checkpointLocation", checkpoint)
    )


def main(place: str, log: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("json_to_samples").getOrCreate()
    json_to_samples(spark, place, {"log": log}, checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
