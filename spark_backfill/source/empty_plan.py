"""Empty plan: recognises the input partition that PySpark plans for a reader without input partitions."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition


def is_empty_plan(partition: InputPartition) -> bool:
    """Whether the reader returned no input partitions. PySpark then calls `read` once, with an InputPartition(None)."""
    return type(partition) is InputPartition and partition.value is None
