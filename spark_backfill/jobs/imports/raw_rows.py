"""Raw rows: read files of a layout as rows of label text, time and value. Column `problem` has the reason of a refusal.

Spark does all of this with column expressions, except for blocks of Prometheus: several tasks read each block. No row
is dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.imports.normal_rows import SEPARATOR
from spark_backfill.jobs.imports.prometheus.blocks import blocks_at, read_share
from spark_backfill.writing.detail_columns import HISTOGRAM_DDL
from tsdb.model.errors import InvalidRequest
from tsdb.model.import_layout import CSV, METRIC_NAME, PARQUET, PROMETHEUS, ImportLayout

HISTOGRAM, START_MS = "histogram", "start_ms"  # Columns of exports, beside `value`.
RAW_SCHEMA = (
    f"labels string, ts_ms bigint, value double, {HISTOGRAM} {HISTOGRAM_DDL}, {START_MS} bigint, problem string,"
    " shown string"
)
SHARES = 8  # Tasks for one block: two hours of a large Prometheus have millions of series.
_BROKEN = "_broken_line"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_INFINITE = r"^([+-]?)(inf|infinity)$"
_INTEGRAL = (ByteType, ShortType, IntegerType, LongType)
_NS_AS_NUMBERS = "spark.sql.legacy.parquet.nanosAsLong"
_FINE_TEXT = r"[.,]\d{3}\d*[1-9]"  # Matches ISO 8601 times with digits below a microsecond, which Spark drops.
_PER_MS = {"us": 1_000, "ns": 1_000_000}


def raw_rows(spark: SparkSession, paths: Sequence[str], layout: ImportLayout) -> DataFrame:
    """Rows of RAW_SCHEMA. Raises InvalidRequest (bad_layout), and Spark's error for a missing path.

    For blocks the paths are blocks or folders of blocks, and tasks use the same paths: no_input, no_meta. A chunk of a
    native histogram gives one row with a problem.
    """
    if layout.format == PROMETHEUS:
        return _block_rows(spark, paths)
    frame, layout = _read(spark, paths, layout)
    layout.check(frame.columns)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    frame = _melted(frame, layout, kinds)
    (stamp, is_fine), value = _time(F.col(layout.time), kinds[layout.time], layout), F.col("_value")
    value_kind = kinds[(layout.metrics or (layout.value,))[0]] if not layout.metrics else DoubleType()
    number = _number(value, value_kind) if not layout.metrics else value
    histogram, start_ms = _details(layout, kinds)
    problem = _first_of(
        (F.col(_BROKEN).isNotNull(), "bad_line"),
        (F.col(layout.time).isNull(), "null_timestamp"),
        (stamp.isNull(), "bad_timestamp"),
        *([] if layout.round_times else [(is_fine, "fine_timestamp")]),
        (F.col("_problem").isNotNull(), F.col("_problem")),
        *([] if layout.metrics else _value_problems(value, value_kind, number, histogram)),
    )
    shown = F.when(
        problem.isNotNull(),
        F.concat_ws(" ", F.col(_BROKEN), F.col(layout.time).cast("string"), value.cast("string")),
    )
    return frame.select(
        _labels(layout, kinds).alias("labels"),
        stamp.alias("ts_ms"),
        number.alias("value"),
        histogram.alias(HISTOGRAM),
        start_ms.alias(START_MS),
        problem.alias("problem"),
        shown.alias("shown"),
    )


def _block_rows(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    shares = [(str(block), share) for block in blocks_at(paths) for share in range(SHARES)]
    frame = spark.createDataFrame(shares, "block string, share int").repartition(len(shares), "block", "share")
    return frame.mapInArrow(_read_shares, RAW_SCHEMA)


def _read_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with quoted_errors():
        for batch in batches:
            for row in batch.to_pylist():
                yield from read_share(Path(row["block"]), row["share"], SHARES)


def _read(spark: SparkSession, paths: Sequence[str], layout: ImportLayout) -> tuple[DataFrame, ImportLayout]:
    """The files, and the layout with the unit of time that they state."""
    if layout.format == PARQUET:
        frame, layout = _parquet(spark, paths, layout)
        return frame.withColumn(_BROKEN, F.lit(None).cast("string")), layout
    return _lines(spark, paths, layout), layout


def _lines(spark: SparkSession, paths: Sequence[str], layout: ImportLayout) -> DataFrame:
    if layout.format == CSV:
        quoted = spark.read.option("header", True).option("escape", '"').option("mode", "PERMISSIVE")
        columns = quoted.csv(list(paths)).columns
        schema = StructType([StructField(name, StringType()) for name in (*columns, _BROKEN)])
        return quoted.option("columnNameOfCorruptRecord", _BROKEN).schema(schema).csv(list(paths))
    kinds: dict[str, DataType] = {name: StringType() for name in layout.columns}
    if layout.labels:
        kinds[layout.labels] = MapType(StringType(), StringType())
    schema = StructType([StructField(name, kind) for name, kind in {**kinds, _BROKEN: StringType()}.items()])
    return spark.read.option("columnNameOfCorruptRecord", _BROKEN).schema(schema).json(list(paths))


def _parquet(spark: SparkSession, paths: Sequence[str], layout: ImportLayout) -> tuple[DataFrame, ImportLayout]:
    """Spark reads timestamps in ns, as pandas writes them, only as numbers. The files say which numbers these are, and
    the layout that is returned has their unit.
    """
    spark.conf.set(_NS_AS_NUMBERS, "true")
    frame = spark.read.parquet(*paths)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    files = sorted(frame.inputFiles()) if isinstance(kinds.get(layout.time), LongType) else []
    if not files or not _is_in_ns(spark, files[0], layout.time):
        return frame, layout
    for file in files[1:]:
        if not _is_in_ns(spark, file, layout.time):
            raise InvalidRequest(
                f"column {layout.time} has timestamps in ns in {files[0]} and none in {file}: import the files of each"
                " kind by a job of their own",
                reason="bad_layout",
            )
    return frame, replace(layout, time_unit="ns")


def _is_in_ns(spark: SparkSession, file: str, column: str) -> bool:
    """Whether a Parquet file has timestamps in ns in this column. False for a file without the column."""
    assert spark._jvm is not None, "an import runs where Spark's driver is"
    parquet, hadoop = spark._jvm.org.apache.parquet.hadoop, spark._jvm.org.apache.hadoop
    path = hadoop.fs.Path(file)
    reader = parquet.ParquetFileReader.open(
        parquet.util.HadoopInputFile.fromPath(path, spark._jsc.hadoopConfiguration())
    )
    try:
        schema = reader.getFooter().getFileMetaData().getSchema()
    finally:
        reader.close()
    return any(
        field.getName() == column and "TIMESTAMP(NANOS" in str(field.getLogicalTypeAnnotation())
        for field in schema.getFields()
    )


def _melted(frame: DataFrame, layout: ImportLayout, kinds: dict[str, DataType]) -> DataFrame:
    """One value in each row, in `_value`. With metric columns, `_metric` has the name of the column."""
    none = F.lit(None).cast("string")
    if not layout.metrics:
        return frame.withColumns({"_value": F.col(layout.value), "_metric": none, "_problem": none})
    each = []
    for name in layout.metrics:
        number = _number(F.col(name), kinds[name])
        problem = _first_of(*_value_problems(F.col(name), kinds[name], number, F.lit(None)))
        value = F.struct(F.lit(name).alias("m"), number.alias("v"), problem.alias("p"))
        each.append(F.when(F.col(name).isNotNull(), value))
    melted = frame.withColumn("_each", F.explode(F.array_compact(F.array(*each))))
    return melted.withColumns({"_value": F.col("_each.v"), "_metric": F.col("_each.m"), "_problem": F.col("_each.p")})


def _labels(layout: ImportLayout, kinds: dict[str, DataType]) -> Column:
    """All labels of a row, as JSON objects joined by SEPARATOR. Labels of a later object replace earlier ones."""
    parts = []
    if layout.labels:
        column = F.col(layout.labels)
        parts.append(column if isinstance(kinds[layout.labels], StringType) else F.to_json(column))
    own = [F.col(column).cast("string").alias(label) for label, column in layout.label_columns]
    own += [F.lit(value).alias(label) for label, value in layout.constants]
    if layout.metrics:
        own.append(F.col("_metric").alias(METRIC_NAME))
    if own:
        parts.append(F.to_json(F.struct(*own)))
    return F.concat_ws(SEPARATOR, *parts)


def _time(column: Column, kind: DataType, layout: ImportLayout) -> tuple[Column, Column]:
    """(time, is finer). The time is in ms, rounded down; null where the column has no valid time. A time is finer when
    it has digits below a millisecond."""
    if isinstance(kind, TimestampType | TimestampNTZType):
        micros = F.unix_micros(column.cast("timestamp"))
        return _whole(micros, 1_000)
    unit = layout.time_unit
    if isinstance(kind, StringType) and unit == "iso":
        stamp, _ = _whole(F.unix_micros(F.try_to_timestamp(column)), 1_000)
        return stamp, column.rlike(_FINE_TEXT)
    if unit == "iso":
        raise InvalidRequest(
            f"time unit iso wants text or timestamps; column is {kind.simpleString()}", reason="bad_layout"
        )
    if unit == "s":
        exact = column.try_cast("decimal(30,9)") * F.lit(1_000)
        return F.floor(exact).try_cast("bigint"), F.floor(exact) != exact
    if not isinstance(kind, (StringType, *_INTEGRAL)):
        raise InvalidRequest(
            f"column {layout.time} is {kind.simpleString()}; want timestamps, integers or text", reason="bad_layout"
        )
    whole = F.trim(column).try_cast("bigint") if isinstance(kind, StringType) else column.cast("bigint")
    return (whole, F.lit(False)) if unit == "ms" else _whole(whole, _PER_MS[unit])


def _whole(number: Column, per_ms: int) -> tuple[Column, Column]:
    """Whole ms of a number of finer units, and whether there is a rest."""
    stamp = F.floor(number / F.lit(per_ms).cast("decimal(10,0)")).cast("bigint")
    return stamp, number % F.lit(per_ms) != 0


def _number(column: Column, kind: DataType) -> Column:
    if not isinstance(kind, StringType):
        return column.cast("double")
    text = F.lower(F.trim(column))
    infinite = F.when(text.startswith("-"), F.lit(float("-inf"))).otherwise(F.lit(float("inf")))
    return (
        F.when(text.rlike(_INFINITE), infinite)
        .when(text == "nan", F.lit(float("nan")))
        .when(text.rlike(_NUMBER), text.try_cast("double"))
    )


def _details(layout: ImportLayout, kinds: dict[str, DataType]) -> tuple[Column, Column]:
    """(histogram, start timestamp in ms) of each row, null where it has none. Files have both columns, as exports write
    them, or neither; columns of other types are not read."""
    none = F.lit(None).cast(HISTOGRAM_DDL), F.lit(None).cast("bigint")
    if layout.metrics or HISTOGRAM not in kinds or kinds[HISTOGRAM].simpleString() != HISTOGRAM_DDL:
        return none
    return F.col(HISTOGRAM), F.col(START_MS) if isinstance(kinds.get(START_MS), LongType) else none[1]


def _value_problems(column: Column, kind: DataType, number: Column, histogram: Column) -> list[tuple[Column, str]]:
    missing = column.isNull() & histogram.isNull()
    problems = [(missing, "null_value"), (number.isNull() & column.isNotNull(), "bad_value")]
    if isinstance(kind, StringType):
        text = F.lower(F.trim(column))
        too_large = F.abs(number) == F.lit(float("inf"))
        problems.append((too_large & ~text.rlike(_INFINITE), "value_too_large"))
    elif isinstance(kind, (*_INTEGRAL, DecimalType)):
        # Beyond 2^53 a float64 cannot represent every integer.
        problems.append((number.cast("decimal(38,10)") != column.cast("decimal(38,10)"), "value_inexact"))
    elif not isinstance(kind, DoubleType | FloatType):
        raise InvalidRequest(f"a value column is {kind.simpleString()}; want numbers or text", reason="bad_layout")
    return problems


def _first_of(*cases: tuple[Column, str | Column]) -> Column:
    """The text of the first case with a true condition; null when no condition is true."""
    none = F.lit(None).cast("string")
    return reduce(
        lambda rest, case: F.when(case[0], case[1] if isinstance(case[1], Column) else F.lit(case[1])).otherwise(rest),
        reversed(cases),
        none,
    )
