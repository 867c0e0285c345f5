"""Columns of samples: defines names and types of the columns of a DataFrame, as Spark types and as Arrow types.

Spark does not tell a Python source which columns a query needs. A query names fewer columns with `.schema(...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tsdb.model.errors import InvalidRequest

LABELS, SERIES_ID, PACK_ID, TS, VALUE = "labels", "series_id", "pack_id", "ts", "value"
ORDER, PARTITION, OFFSET, BROKER_TIME = "order", "partition", "offset", "broker_time"
# Only the column of an absent label contains nulls. Unless the type excludes nulls, Spark's generated code checks each
# element for null, a quarter of the JVM's work for rows that are runs. A schema given as text always allows nulls.
MAP = MapType(StringType(), StringType(), valueContainsNull=False)
_SPARK: dict[str, DataType] = {
    LABELS: MAP,
    SERIES_ID: LongType(),
    PACK_ID: LongType(),
    TS: TimestampType(),
    VALUE: DoubleType(),
}
# Columns of the source `log`: the position and the rank of one version of a sample. A label of such a name is a column
# of text.
VERSION: dict[str, DataType] = {
    ORDER: LongType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    BROKER_TIME: TimestampType(),
}
HISTOGRAM, START_TS = "histogram", "start_ts"
_SPANS = ArrayType(StructType([StructField("offset", IntegerType()), StructField("length", IntegerType())]))
# Columns of samples with more than a float, in no default schema: a query names them with `.schema(...)`.
DETAILS: dict[str, DataType] = {
    HISTOGRAM: StructType(
        [
            StructField("schema", IntegerType()),
            StructField("zero_threshold", DoubleType()),
            StructField("zero_count", DoubleType()),
            StructField("count", DoubleType()),
            StructField("sum", DoubleType()),
            StructField("positive_spans", _SPANS),
            StructField("positive_counts", ArrayType(DoubleType())),
            StructField("negative_spans", _SPANS),
            StructField("negative_counts", ArrayType(DoubleType())),
            StructField("custom_bounds", ArrayType(DoubleType())),
            StructField("reset_hint", StringType()),
            StructField("is_integer", BooleanType()),
        ]
    ),
    START_TS: TimestampType(),
}
ARROW_MAP = pa.map_(pa.string(), pa.string())
ARROW_TS = pa.timestamp("us", tz="UTC")
# Types for rows that are runs: a row has all samples of one series in one window.
_SPARK_RUNS = {
    **_SPARK,
    TS: ArrayType(TimestampType(), containsNull=False),
    VALUE: ArrayType(DoubleType(), containsNull=False),
}
_DETAIL_RUNS: dict[str, DataType] = {name: ArrayType(of) for name, of in DETAILS.items()}


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """arrow: names in order, with the Arrow types that Spark expects. runs: a row is a run, not a sample.

    A name that is not one of ours is the name of a label: a text column, null where a series has no such label.
    """

    arrow: pa.Schema
    runs: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self.arrow.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns that show one label each."""
        return tuple(of.name for of in self.arrow if of.name not in _SPARK and not is_version(of) and not is_detail(of))

    @property
    def details(self) -> frozenset[str]:
        """Those of DETAILS that are among the columns."""
        return frozenset(of.name for of in self.arrow if is_detail(of))

    @property
    def need_labels(self) -> bool:
        """Whether a column shows labels of the series."""
        return LABELS in self.names or bool(self.labels)


def is_version(of: pa.Field) -> bool:
    """Whether the column is one of VERSION, and not a label with such a name."""
    return of.name in VERSION and not pa.types.is_string(of.type)


def is_detail(of: pa.Field) -> bool:
    """Whether the column is one of DETAILS, and not a label with such a name."""
    return of.name in DETAILS and not pa.types.is_string(of.type)


def sample_schema(
    wide: Sequence[str] = (), *, runs: bool = False, versions: bool = False, details: bool = False
) -> StructType:
    """The default schema: all our columns. With `wide`, one column for each of these labels in place of `labels`, which
    stays if it is among them. With `versions` and `details`, those of VERSION and of DETAILS too, except for names that
    `wide` has.

    Raises InvalidRequest (bad_option) for a name that is a column already or given twice.

    """
    ours = [name for name in wide if name in _SPARK and name != LABELS]
    if ours:
        raise InvalidRequest(f"option wide names {', '.join(ours)}, which is a column already", reason="bad_option")
    if len(set(wide)) != len(wide):
        raise InvalidRequest(f"option wide names a label twice: {', '.join(wide)}", reason="bad_option")
    names = [*(wide or (LABELS,)), SERIES_ID, PACK_ID, TS, VALUE]
    types = _SPARK_RUNS if runs else _SPARK
    fields = [StructField(name, types.get(name, StringType())) for name in names]
    if versions:
        fields += [StructField(name, of) for name, of in VERSION.items() if name not in names]
    if details:
        types = _DETAIL_RUNS if runs else DETAILS
        fields += [StructField(name, of) for name, of in types.items() if name not in names]
    return StructType(fields)


def columns_of(schema: StructType, *, runs: bool = False, versions: bool = False) -> SampleColumns:
    """Columns of a schema. versions: those of VERSION may be among them.

    Raises InvalidRequest (bad_schema) for a wrong type, or a label that is not text.
    """
    types = _SPARK_RUNS if runs else _SPARK
    details = _DETAIL_RUNS if runs else DETAILS
    for field in schema.fields:
        if field.name in details and field.dataType != StringType():
            _check_type(field, details[field.name])
            continue
        of_version = field.name in VERSION and field.dataType != StringType()
        if of_version and not versions:
            raise InvalidRequest(
                f"column {field.name} is of the source log alone; as text it is the label {field.name}",
                reason="bad_schema",
            )
        wanted = VERSION[field.name] if of_version else types.get(field.name, StringType())
        _check_type(field, wanted)
    return SampleColumns(to_arrow_schema(schema, timezone="UTC"), runs)


def _check_type(field: StructField, wanted: DataType) -> None:
    got, want = field.dataType.simpleString(), wanted.simpleString()
    if got != want:
        raise InvalidRequest(f"column {field.name} is {got}; want {want}", reason="bad_schema")
