"""Chunk stage: measures CPU a sample from log records to chunks, bytes of the chunks, and evenness of a window's
emission.

The data are W(S) over one window of 4 h in one partition, without a log, and the metrics of a host, 240 samples in each
series and window, where only the series of a pack share their jittered time axis. The controls are the columns of the
same chunks alone, and applying the same records to a head as a store does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.heads import Poll, new_head, polls, register
from bench.measure import say, spent
from bench.workload import INTERVAL_MS, SAMPLES, Workload
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage import ChunkStage
from tsdb.chunks.window import due_times
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.columns.columns import encode_values_dense
from tsdb.codec.records.log_record import decode_records, encode_tick
from tsdb.log.interface import POLL_RECORDS_MAX
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION, slice_lengths

NODE = Path(__file__).parents[2] / "tests" / "data" / "node_5s.parquet"
NODE_WINDOW_MS = 240 * 5_000
SERIES = 20_000
START_MS = 1_699_992_000_000 // PRODUCTION.window_ms * PRODUCTION.window_ms
RECORD_SAMPLES = 100  # One record for each instance, as gateways write.
POLL_BYTES_MAX = 4 << 20
MISSION_RATE = 150_000
MISSION_PACKS = 1_800_000
STEP_MS = 60_000  # Windows are emitted in such steps, and evenness compares them.


def main(argv: Sequence[str]) -> dict[str, object]:
    """ns a sample of each step, cores at MISSION_RATE samples a second, bytes a sample, evenness."""
    parser = argparse.ArgumentParser(prog="bench chunk_stage", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--quick", action="store_true", help="fewer series")
    arguments = parser.parse_args(argv)
    series = 2_000 if arguments.quick else arguments.series
    return {"synthetic": _synthetic(series), "node_240": _node(), "mission_packs_evenness": _evenness()}


def _synthetic(series: int) -> dict[str, object]:
    workload = Workload(series, 1)
    given = list(
        polls(
            workload,
            workload.shares[0],
            START_MS,
            SAMPLES,
            RECORD_SAMPLES,
            records_max=POLL_RECORDS_MAX,
            bytes_max=POLL_BYTES_MAX,
        )
    )
    _apply(_stage(workload), given[:2])  # Compiles.
    samples = series * SAMPLES
    stage = _stage(workload)
    with spent() as applied:
        _apply(stage, given)
    say(f"applied {samples} samples")
    _close(stage, given)
    with spent() as emitted:
        sizes, by_minute = _emit(stage)
    control = _store_control(workload, given)
    columns = sum(len(encode_values_dense(workload.values[row])) for row in range(series))
    ns = {"apply": applied.cpu_s / samples * 1e9, "emit": emitted.cpu_s / samples * 1e9}
    return {
        "samples": samples,
        **{f"{part}_ns_per_sample": round(value, 1) for part, value in ns.items()},
        "store_apply_ns_per_sample": round(control / samples * 1e9, 1),
        "cores_at_150k_samples_per_s": round(sum(ns.values()) * MISSION_RATE / 1e9, 4),
        "chunks": len(sizes),
        "bytes_a_sample": round(sum(sizes) / samples, 4),
        "columns_alone_bytes_a_sample": round(columns / samples, 4),
        "minutes": len(by_minute),
        "chunks_a_minute_max_over_mean": round(max(by_minute) / (sum(by_minute) / len(by_minute)), 3),
    }


def _stage(workload: Workload) -> ChunkStage:
    progress = Progress(0, START_MS)
    stage = ChunkStage(0, progress, 0, times=PRODUCTION, slices=slice_lengths(PRODUCTION.name))
    register(stage.head, workload, workload.shares[0], START_MS)
    return stage


def _apply(stage: ChunkStage, given: Sequence[Poll]) -> None:
    for poll in given:
        records = decode_records(poll.values, poll.value_starts)
        stage.unknown_ids(records)
        stage.apply(records, poll.offsets, poll.broker_ms)
        stage.maintain()


def _close(stage: ChunkStage, given: Sequence[Poll]) -> None:
    """Apply a tick that closes the window."""
    tick, end_ms = encode_tick(), START_MS + PRODUCTION.window_ms + PRODUCTION.grace_ms
    records = decode_records(tick, np.array([0, len(tick)], np.int64))
    stage.apply(records, given[-1].offsets[-1:] + 1, np.array([end_ms], np.int64))


def _emit(stage: ChunkStage) -> tuple[list[int], list[int]]:
    """(bytes of each chunk, chunks of each minute) of the whole window, emitted by the chunker's clock."""
    sizes: list[int] = []
    by_minute: list[int] = []
    now_ms = START_MS + PRODUCTION.window_ms + PRODUCTION.grace_ms
    while stage.windows_waiting:
        now_ms += STEP_MS
        before = len(sizes)
        while (emission := stage.due(now_ms)) is not None:
            sizes += [record.size for record in emission.records]
            stage.finish(emission)
        by_minute.append(len(sizes) - before)
    return sizes, by_minute


def _store_control(workload: Workload, given: Sequence[Poll]) -> float:
    head = new_head()
    register(head, workload, workload.shares[0], START_MS)
    started = time.process_time()
    for poll in given:
        records = decode_records(poll.values, poll.value_starts)
        head.unknown_ids(records)
        head.apply(records, poll.offsets, poll.broker_ms)
        head.maintain()
    return time.process_time() - started


def _node() -> dict[str, object]:
    fragments = list(_node_fragments())
    samples = sum(fragment.samples for fragment in fragments)
    encode_chunk(fragments[0], window_ms=NODE_WINDOW_MS)
    with spent() as encoded:
        chunks = [part for each in fragments for part in encode_chunk(each, window_ms=NODE_WINDOW_MS)]
    with spent() as decoded:
        back = sum(decode_chunk(chunk).samples for chunk in chunks)
    assert back == samples, "what was encoded comes back"
    columns = sum(
        len(encode_values_dense(each.value[first:last]))
        for each in fragments
        for first, last in zip(each.sample_start[:-1], each.sample_start[1:], strict=True)
    )
    return {
        "samples": samples,
        "chunks": len(chunks),
        "bytes_a_sample": round(sum(map(len, chunks)) / samples, 4),
        "columns_alone_bytes_a_sample": round(columns / samples, 4),
        "encode_ns_per_sample": round(encoded.cpu_s / samples * 1e9, 1),
        "decode_ns_per_sample": round(decoded.cpu_s / samples * 1e9, 1),
    }


def _node_fragments() -> Iterator[Fragment]:
    """The fragment of each pack in each whole window."""
    table = pq.read_table(NODE)
    labels = table.column("labels").combine_chunks()
    ts_ms, values, of = table.column("ts_ms").to_numpy(), table.column("value").to_numpy(), labels.indices.to_numpy()
    canonical = [canonical_labels(json.loads(text)) for text in labels.dictionary.to_pylist()]
    ids = np.array([series_id(each) for each in canonical], np.uint64)
    packs = np.array([PlacementRule().place(each).pack_id for each in canonical], np.uint64)
    first, last = int(ts_ms.min() // NODE_WINDOW_MS) + 1, int(ts_ms.max() // NODE_WINDOW_MS)
    for window in range(first, last):
        inside = ts_ms // NODE_WINDOW_MS == window
        order = np.lexsort((ts_ms[inside], ids[of[inside]], packs[of[inside]]))
        rows = np.flatnonzero(inside)[order]
        cuts = np.flatnonzero(np.diff(packs[of[rows]])) + 1
        for part in np.split(rows, cuts):
            series, starts = np.unique(ids[of[part]], return_index=True)
            yield Fragment(
                int(packs[of[part[0]]]),
                window * NODE_WINDOW_MS,
                series,
                np.append(starts, len(part)).astype(np.int64),
                ts_ms[part],
                values[part],
                np.full(len(part), 1_000_000, np.int64),
            )


def _evenness() -> float:
    """Packs due in the fullest minute divided by the mean, for MISSION_PACKS packs."""
    rng = np.random.default_rng(1)
    pack_ids = rng.integers(0, 2**64, MISSION_PACKS, np.uint64, endpoint=False)
    due = due_times(pack_ids, 0, PRODUCTION) - PRODUCTION.grace_ms
    by_minute = np.bincount(due // STEP_MS)
    assert len(by_minute) == PRODUCTION.spread_ms // INTERVAL_MS, "all within spread"
    return round(float(by_minute.max() / by_minute.mean()), 3)
