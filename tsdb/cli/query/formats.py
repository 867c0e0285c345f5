"""Writes a result as JSON, CSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tsdb.cli.query.target import OutputTarget
from tsdb.cli.terminal.output import json_line, json_value
from tsdb.client import QueryResult, SelectResult

Result = SelectResult | QueryResult


def write_result(result: Result, rest: Mapping[str, Any], target: OutputTarget) -> None:
    """Write the result in any format except the table. rest: JSON fields that follow the series."""
    with target.open() as file:
        if target.form == "json":
            _write_json(result, rest, file)
        elif target.form == "csv":
            _write_csv(result, file)
        else:
            _write_parquet(result, file)


def _write_json(result: Result, rest: Mapping[str, Any], file: BinaryIO) -> None:
    """Write one line: {"series":[{"labels":{},"ts_ms":[],"values":[]}], ...}, series by series."""
    file.write(b'{"series":[')
    for index, (labels, ts_ms, values) in enumerate(result):
        entry = {"labels": labels, "ts_ms": ts_ms.tolist(), "values": _json_values(values)}
        file.write(b"," * bool(index) + json_line(entry).rstrip("\n").encode())
    file.write(b"]," + json_line(rest)[1:].encode())


def _json_values(values: NDArray[np.float64]) -> list[float | str]:
    if np.isfinite(values).all():
        numbers: list[float | str] = values.tolist()
        return numbers
    return [json_value(value) for value in values.tolist()]


def _write_csv(result: Result, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    table = result.to_arrow()
    # The spelling of `tsdb write` and Prometheus.
    special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    texts = table["value"].cast(pa.string())
    for spelled, wanted in special.items():
        texts = pc.if_else(pc.equal(texts, spelled), wanted, texts)
    columns = [table["labels"].cast(pa.string()), table["ts_ms"], texts]
    pacsv.write_csv(pa.table(columns, names=["labels", "ts_ms", "value"]), file)


def _write_parquet(result: Result, file: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(result.to_arrow(), file, compression="zstd")
