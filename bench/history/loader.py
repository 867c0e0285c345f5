"""Loader: chunks a second into a slow store, against the rate that the store's latency allows.

N writes in flight allow N / mean latency writes a second. The store is a stub in a separate process, which reports the
mean latency. The loader is the complete real one: log, group, decoding, lanes, commits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from bench.ground import Appends, embedded_log, kafka_log
from bench.history.stub_store import StubStore
from bench.measure import say, spent
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import CHUNKS, Log
from tsdb.log.open import open_log
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION

PARTITIONS = 3
PACKS = 1_000
SERIES, SAMPLES = 5, 240
WITHIN_S = 300.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Figures for both logs. share: the rate as a share of concurrency / mean latency; floor 0.90, goal 0.95."""
    parser = argparse.ArgumentParser(prog="bench loader", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the chunks")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--chunks", type=int, default=40_000)
    arguments = parser.parse_args(argv)
    count = arguments.chunks // 5 if arguments.quick else arguments.chunks
    result: dict[str, object] = {}
    with embedded_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url:
        result["embedded"] = _one(url, count, arguments.concurrency, arguments.latency_ms)
    with kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url:
        result["kafka"] = _one(url, count, arguments.concurrency, arguments.latency_ms)
    return result


def _one(url: str, count: int, concurrency: int, latency_ms: float) -> dict[str, object]:
    with open_log(url) as log, StubStore(latency_ms) as store:
        size = _fill(log, count)
        say(f"{count} chunks of {size} bytes in {url.partition(':')[0]}")
        loader = Loader(log, store, LoaderOptions(PRODUCTION, concurrency=concurrency), SystemClock())
        with spent() as all_of_it:
            loader.start()
            _wait(loader, store, count)
        loader.close()
        loader.join(30.0)
        report = store.report()
        per_s = count / (store.ended_at - store.began_at)
        allowed = concurrency / (report["mean_ms"] / 1000)
        return {
            "chunks": count,
            "chunk_bytes": size,
            "concurrency": concurrency,
            "store_mean_ms": round(report["mean_ms"], 2),
            "most_at_once": report["most_at_once"],
            "chunks_per_s": round(per_s),
            "allowed_per_s": round(allowed),
            "share": round(per_s / allowed, 3),
            "cpu_us_a_chunk": round(all_of_it.cpu_s / count * 1e6, 1),
        }


def _wait(loader: Loader, store: StubStore, count: int) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while store.written < count:
        failure = loader.failure()
        if failure is not None:
            raise failure
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"{store.written} of {count} chunks in {WITHIN_S:.0f} s")
        time.sleep(0.05)


def _fill(log: Log, count: int) -> int:
    """Append chunks of PACKS packs in turn; return the bytes of one chunk."""
    values = [_chunk(pack) for pack in range(1, PACKS + 1)]
    pending = Appends(log)
    for number in range(count):
        pack = number % PACKS
        key = ChunkKey(pack + 1, 0, Kind.LATE, number, 0)
        pending.add(CHUNKS, pack % PARTITIONS, values[pack], key=encode_key(key))
    pending.wait()
    return len(values[0])


def _chunk(pack_id: int) -> bytes:
    source = np.random.default_rng(pack_id)
    times = np.tile(np.arange(SAMPLES, dtype=np.int64) * 60_000, SERIES)
    starts = np.arange(SERIES + 1, dtype=np.int64) * SAMPLES
    values = np.round(source.normal(50, 5, SERIES * SAMPLES), 2)
    ids = np.arange(1, SERIES + 1, dtype=np.uint64)
    fragment = Fragment(pack_id, 0, ids, starts, times, values, np.full(len(times), 7, np.int64))
    (value,) = encode_chunk(fragment, window_ms=PRODUCTION.window_ms)
    return value
