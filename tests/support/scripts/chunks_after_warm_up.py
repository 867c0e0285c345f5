"""Run as a process: warms up, runs a chunk stage, and prints the kernels compiled or loaded after the warm-up."""

from __future__ import annotations

import json
import random

from support.data.heads import Record
from support.scripts.kernels import kernels_here
from support.servers.chunk_runs import ChunkRun
from tsdb.chunks.warm_up import warm_up
from tsdb.codec.chunk.chunk import decode_chunk


def main() -> None:
    warm_up()
    before = kernels_here()
    records = [
        Record(step, now_ms, tuple((n, now_ms - back, back / 7) for n in range(4) for back in (0, 3, 500)))
        for step, now_ms in enumerate(range(4_000, 6_000, 9))
    ]
    for key, value in ChunkRun(records, random.Random(1)).run():
        if key[0] == 1:
            decode_chunk(value)
    print(json.dumps(sorted(kernels_here() - before)))


if __name__ == "__main__":
    main()
