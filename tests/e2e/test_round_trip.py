"""Written samples come back bit for bit, by RAW and COLUMNS, before and after the store is killed, on both logs."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.data.tables import NODE_5S, assert_equal_samples, read_table
from support.servers.deployments import Deployment
from support.servers.processes import tsdb_json, tsdb_ok, wait_for_samples

EVERYTHING = '{__name__=~".+"}'
# Not part of the repository: used when it is beside the checkout.
CLOUD_1M = Path(__file__).parents[2].parent / "shared" / "data" / "cloud_1m.parquet"
GRID_MS = 60_000
GRID_POINTS = 4_000
SPEED = 30_000  # Two milliseconds a point: the highest speed at which all points have distinct times.


@pytest.mark.variant("kafka")
def test_recorded_host_metrics_come_back_bit_for_bit_before_and_after_a_kill(deployment: Deployment) -> None:
    want = read_table(NODE_5S)
    written = tsdb_json("write", str(NODE_5S), "--address", deployment.gateway.grpc, "--shift-to-now")
    assert (written["samples"], written["refused"]) == (want.num_rows, 0)
    check_before_and_after_a_kill(deployment, shifted(want, written["shift_ms"]))


def test_recordings_on_a_grid_sent_as_live_come_back_bit_for_bit(deployment: Deployment, tmp_path: Path) -> None:
    sources = [grid_recording(tmp_path / "grid.parquet")]
    with contextlib.suppress(FileNotFoundError):
        sources.append(newest_of(CLOUD_1M, tmp_path / "cloud.parquet"))
    want = [send_as_live(deployment, source) for source in sources]
    check_before_and_after_a_kill(deployment, pa.concat_tables(want))


def check_before_and_after_a_kill(deployment: Deployment, want: pa.Table) -> None:
    """Check that `tsdb query --raw` returns exactly `want`, before and after a kill."""
    wait_for_samples(deployment.store.grpc, want.num_rows)
    check(deployment, want)
    deployment.store.kill()
    deployment.store.start()
    check(deployment, want)
    metrics = deployment.store.metrics()
    ignored = {name: value for name, value in metrics.items() if "ignored_samples_total" in name or "bad_rec" in name}
    assert ignored
    assert not any(ignored.values()), f"a healthy pipeline loses nothing: {ignored}"


def check(deployment: Deployment, want: pa.Table) -> None:
    times = want["ts_ms"].to_numpy()
    span = ("--start", str(times.min()), "--end", str(times.max() + 1))
    for encoding in ("raw", "columns"):
        query = ("query", "--raw", EVERYTHING, "--address", deployment.store.grpc, *span, "--encoding", encoding)
        assert_equal_samples(read_table(tsdb_ok(*query, "--output", "parquet")), want)


def shifted(table: pa.Table, shift_ms: int) -> pa.Table:
    """The same samples, moved to a later time."""
    times = pa.array(table["ts_ms"].to_numpy() + shift_ms)
    return table.select(["labels", "ts_ms", "value"]).set_column(1, "ts_ms", times)


def send_as_live(deployment: Deployment, source: Path) -> pa.Table:
    """Write a recording as live. Returns the samples that reads must return."""
    recorded = read_table(source)
    flags = ("--as-live", "--speed", str(SPEED))
    written = tsdb_json("write", str(source), "--address", deployment.gateway.grpc, *flags)
    assert (written["samples"], written["refused"]) == (recorded.num_rows, 0)
    times = recorded["ts_ms"].to_numpy()
    live = written["base_ms"] + (times - times.min()) // SPEED
    return recorded.set_column(1, "ts_ms", pa.array(live))


def grid_recording(path: Path) -> Path:
    """Eleven series on a 60 s grid, as a cloud's monitoring records them; every fifth with gaps."""
    rng = np.random.default_rng(7)
    rows: list[tuple[str, np.ndarray, np.ndarray]] = []
    for number in range(11):
        labels = json.dumps({"__name__": "requests_rate", "instance": f"app-{number}", "job": "cloud"})
        kept = np.flatnonzero(rng.random(GRID_POINTS) > (0.1 if number % 5 == 0 else 0))
        values = rng.normal(100, 20, len(kept)).round(number % 4) if number < 8 else rng.normal(0, 1e-3, len(kept))
        rows.append((labels, 1_524_614_400_000 + kept * GRID_MS, values))
    names = [labels for labels, times, _ in rows for _ in times]
    columns = {
        "labels": pa.array(names).dictionary_encode(),
        "ts_ms": np.concatenate([times for _, times, _ in rows]),
        "value": np.concatenate([values for _, _, values in rows]),
    }
    pq.write_table(pa.table(columns), path)
    return path


def newest_of(recording: Path, path: Path) -> Path:
    """The newest GRID_POINTS points of each series, moved so that all of them end together."""
    labels, times, values = (read_table(recording)[name] for name in ("labels", "ts_ms", "value"))
    frame = pa.table({"labels": labels.cast(pa.string()), "ts_ms": times, "value": values}).to_pandas()
    ends = frame.groupby("labels")["ts_ms"].transform("max")
    frame["ts_ms"] += ends.max() - ends
    newest = frame[frame["ts_ms"] > frame["ts_ms"].max() - GRID_POINTS * GRID_MS]
    pq.write_table(pa.Table.from_pandas(newest, preserve_index=False), path)
    return path
