"""The rows and bytes that scheduled jobs fetch for a span do not grow with the history around it."""

from __future__ import annotations

from bench.history.history_growth import ROWS, Fetched, fetched_by_jobs, write_block
from spark_backfill.places import Places
from support.servers.histories import HistoryFactory

PACKS = 20
TIMES = 10


def test_a_day_costs_the_jobs_the_same_in_ten_times_the_history(history_factory: HistoryFactory) -> None:
    places = Places(history=history_factory.url)
    store = history_factory.open()
    write_block(store, PACKS, 0)
    alone = fetched_by_jobs(places, PACKS, 1)
    for block in range(1, TIMES):
        write_block(store, PACKS, block)
    assert _figures(fetched_by_jobs(places, PACKS, TIMES)) == _figures(alone)
    assert alone["verify"].rows == PACKS * ROWS
    assert (alone["merge_late"].rows, alone["merge_late"].bytes, alone["merge_late"].keys) == (0, 0, PACKS * ROWS)
    assert (alone["downsample"].rows, alone["downsample"].bytes) == (0, 0)
    assert alone["downsample"].keys == PACKS * ROWS


def _figures(found: dict[str, Fetched]) -> dict[str, tuple[int, int, int]]:
    return {job: (one.rows, one.keys, one.bytes) for job, one in found.items() if job != "control"}
