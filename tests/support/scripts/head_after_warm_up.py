"""Run as a process: warms up, lets a head live, and prints the kernels compiled or loaded after the warm-up."""

from __future__ import annotations

import json

from support.data.heads import Record, apply, new_head, refs_of
from support.scripts.kernels import kernels_here
from tsdb.head.warm_up import warm_up

SERIES = range(5)


def main() -> None:
    warm_up()
    before = kernels_here()
    head = new_head(series=len(SERIES), coverage_start_ms=990)
    for step in range(60):
        now_ms = 1000 + 5 * step
        samples = tuple((number, now_ms - back, back / 7) for number in SERIES for back in (0, 3, 3, 70, 300))
        apply(head, [Record(step, now_ms, samples)])
        head.maintain()
        refs = refs_of(head, SERIES)
        head.gather_raw(refs, 0, now_ms, partial=True)
        head.gather_raw(refs, 0, now_ms, step_ms=7, aggregation=1)
        head.gather_raw(refs, 0, now_ms, last_n=2)
        head.gather_columns(refs, now_ms - 100, now_ms)
        head.seen(refs)
        head.watch_since(0)
    print(json.dumps(sorted(kernels_here() - before)))


if __name__ == "__main__":
    main()
