"""Columns of samples: which a DataFrame has, in Spark's words and in Arrow's.

Spark does not tell a Python source which columns a query needs, so whoever wants fewer says so with `.schema(...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tsdb.model.errors import InvalidRequest

LABELS, SERIES_ID, PACK_ID, TS, VALUE = "labels", "series_id", "pack_id", "ts", "value"
# Nothing is null but a label that is not there. Spark's generated code asks each element whether it is, unless told
# that none is: a quarter of what its JVM does for runs. A schema given as text always says that some may be.
MAP = MapType(StringType(), StringType(), valueContainsNull=False)
_SPARK: dict[str, DataType] = {
    LABELS: MAP,
    SERIES_ID: LongType(),
    PACK_ID: LongType(),
    TS: TimestampType(),
    VALUE: DoubleType(),
}
ARROW_MAP = pa.map_(pa.string(), pa.string())
ARROW_TS = pa.timestamp("us", tz="UTC")
# Of rows that are runs: all samples of a series in a window.
_SPARK_RUNS = {
    **_SPARK,
    TS: ArrayType(TimestampType(), containsNull=False),
    VALUE: ArrayType(DoubleType(), containsNull=False),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """arrow: names in order, and types as Spark asks for them. A name that is none of ours is a label's: text, null
    where a series has no such label.

    runs: whether a row is a run, not a sample."""

    arrow: pa.Schema
    runs: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of all."""
        return tuple(self.arrow.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that are columns."""
        return tuple(name for name in self.names if name not in _SPARK)

    @property
    def need_labels(self) -> bool:
        """Whether a row shows anything of its series' labels."""
        return LABELS in self.names or bool(self.labels)


def sample_schema(wide: Sequence[str] = (), *, runs: bool = False) -> StructType:
    """What a DataFrame has unless told otherwise: all of ours, `labels` replaced by the wide ones."""
    ours = [name for name in wide if name in _SPARK]
    if ours:
        raise InvalidRequest(f"option wide names {', '.join(ours)}, which is a column already", reason="bad_option")
    if len(set(wide)) != len(wide):
        raise InvalidRequest(f"option wide names a label twice: {', '.join(wide)}", reason="bad_option")
    names = [*(wide or (LABELS,)), SERIES_ID, PACK_ID, TS, VALUE]
    types = _SPARK_RUNS if runs else _SPARK
    return StructType([StructField(name, types.get(name, StringType())) for name in names])


def columns_of(schema: StructType, *, runs: bool = False) -> Columns:
    """Raises InvalidRequest (bad_schema) for a column of ours with another type, or a label that is no text."""
    types = _SPARK_RUNS if runs else _SPARK
    for field in schema.fields:
        wanted = types.get(field.name, StringType())
        if field.dataType.simpleString() != wanted.simpleString():
            raise InvalidRequest(
                f"column {field.name} is {field.dataType.simpleString()}; want {wanted.simpleString()}",
                reason="bad_schema",
            )
    return Columns(to_arrow_schema(schema, timezone="UTC"), runs)
