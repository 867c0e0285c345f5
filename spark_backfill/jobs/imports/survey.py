"""Survey: count the samples, series and refused rows of an import before it writes. The driver gets counts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_backfill.jobs.imports.normal_rows import REJECT, SAMPLE, SERIES
from spark_backfill.writing.chunk_writer import SERIES_PER_RANGE, range_bits
from tsdb.history.rows import unsigned
from tsdb.model.errors import InvalidRequest

IDS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Survey:
    """samples: number of rows that are samples. rejected: refused rows by reason. partitions: log partitions of the
    samples. heavy: packs to split: by pack id (int64), the number of upper bits of a series id that give its range."""

    samples: int
    rejected: Mapping[str, int]
    partitions: tuple[int, ...]
    heavy: Mapping[int, int]


def survey(normal: DataFrame, series_per_range: int = SERIES_PER_RANGE) -> Survey:
    """Survey rows of NORMAL_SCHEMA. Raises InvalidRequest (series_id_collision) when two label sets have one id."""
    counted = normal.groupBy("what", "reason").count().collect()
    # One Spark job computes all of it, and the driver receives one row for each log partition.
    ids, labels = series_of(normal).groupBy("series_id"), F.count_distinct("canonical").alias("label_sets")
    series = ids.agg(F.min("partition").alias("partition"), F.min("pack_id").alias("pack_id"), labels)
    packs = series.groupBy("partition", "pack_id").agg(F.count("*").alias("series"), F.max("label_sets").alias("most"))
    heavy = F.when(F.col("series") > series_per_range, F.struct("pack_id", "series"))
    found = packs.groupBy("partition").agg(F.max("most").alias("most"), F.collect_list(heavy).alias("heavy")).collect()
    if any(row["most"] > 1 for row in found):
        raise _collision(series)
    return Survey(
        sum(row["count"] for row in counted if row["what"] == SAMPLE),
        {row["reason"]: row["count"] for row in counted if row["what"] == REJECT},
        tuple(sorted(row["partition"] for row in found)),
        {pack["pack_id"]: range_bits(pack["series"], series_per_range) for row in found for pack in row["heavy"]},
    )


def series_of(normal: DataFrame) -> DataFrame:
    """Each (series, epoch) once: partition, pack_id, series_id, epoch, canonical."""
    columns = ("partition", "pack_id", "series_id", "epoch", "canonical")
    return normal.where(F.col("what") == SERIES).select(*columns).distinct()


def _collision(series: DataFrame) -> InvalidRequest:
    ids = [unsigned(row["series_id"]) for row in series.where("label_sets > 1").limit(IDS_SHOWN).collect()]
    shown = ", ".join(f"{each:016x}" for each in ids)
    return InvalidRequest(f"two label sets have one series id: {shown}", reason="series_id_collision")
