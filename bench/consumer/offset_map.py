"""Offset map: measures the length of the commit metadata of one partition, and the cost of encoding and decoding it.

50,000 records are tracked; from 1 to 49,000 of them, scattered, are unfinished.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

from bench.measure import median_spent
from tsdb.parallel_consumer.offsets.metadata import CommitMetadata, decode_metadata, encode_metadata
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.options import UNITS_MAX

TRACKED = 50_000
UNFINISHED = (1, 100, 2_000, 10_000, 25_000, 49_000)
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUv"


def main(argv: Sequence[str]) -> dict[str, object]:
    """Characters (the limit is 4,095) and microseconds, by number of unfinished records."""
    parser = argparse.ArgumentParser(prog="bench offset_map", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args(argv)
    rounds = 3 if arguments.quick else 21
    return {"tracked": TRACKED, "limit": UNITS_MAX} | {str(count): _one(count, rounds) for count in UNFINISHED}


def _one(unfinished: int, rounds: int) -> dict[str, object]:
    tracker = _tracker(unfinished)
    position = tracker.position

    def encode() -> str:
        return encode_metadata(position, CommitMetadata(tracker.finished_runs()), TOPIC_ID)

    text = encode()
    assert (decode_metadata(position, text, TOPIC_ID).finished == tracker.finished_runs()).all()
    return {
        "characters": len(text.encode("utf-16-le")) // 2,
        "plain": text.isascii(),
        "encode_us": round(median_spent(encode, rounds).cpu_s * 1e6),
        "decode_us": round(median_spent(lambda: decode_metadata(position, text, TOPIC_ID), rounds).cpu_s * 1e6),
    }


def _tracker(unfinished: int) -> OffsetTracker:
    """A tracker with `unfinished` unfinished records. The first record is one of them, so the position is its
    offset."""
    left = {0, *random.Random(1).sample(range(1, TRACKED), unfinished - 1)}
    tracker = OffsetTracker(0)
    for offset in range(TRACKED):
        slot = tracker.add(offset)
        assert slot is not None
        if offset not in left:
            tracker.finish(slot)
    return tracker
