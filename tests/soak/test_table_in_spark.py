"""The example of Spark's own reader of Iceberg runs over a table, in an environment with that Spark alone."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from support.data.table_rows import NAME, new_table, settings_in, state
from support.oracles.fragment_twin import bits, fragment_of
from support.spark.iceberg_reader import spark_of_iceberg
from support.spark.spark import ROOT
from tsdb.history.iceberg.catalog import load_table, open_catalog
from tsdb.history.iceberg.emission import emit
from tsdb.model.labels import canonical_labels, series_id

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

WITHIN_S = 300.0
HOUR_MS = 3_600_000


def test_the_example_prints_means_by_hour(tmp_path: Path) -> None:
    first_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS - 2 * HOUR_MS
    labels = {
        series_id(one): one
        for one in (
            canonical_labels({"__name__": "example_room_celsius", "room": room}) for room in ("attic", "cellar")
        )
    }
    values = {(one, first_ms + 1_000 * at): (1, bits(float(at))) for one in labels for at in range(60)}
    with open_catalog(settings_in(tmp_path)) as catalog:
        table = new_table(catalog)
        emit(table, [fragment_of(values, window_start_ms=first_ms)], lambda ids: [labels[one] for one in ids], state(1))
        metadata = load_table(catalog, NAME).metadata_location
    python, env = spark_of_iceberg()
    command = [str(python), str(ROOT / "examples/table_spark.py"), metadata]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("example_room")]
    assert lines == [f"example_room_celsius {room}: 60 samples, mean 29.50" for room in ("attic", "cellar")]
