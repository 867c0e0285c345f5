"""History growth: what verify, merge-late and downsample fetch for one day, while the history around it grows tenfold.

The functions of the jobs' tasks run in this process, without Spark, over a history that grows by imports into other
windows: of the same packs, and of others. Rows, keys and bytes are those of history's own counters. The control
fetches all of history.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from bench.measure import say, spent
from spark_backfill.building.options import BuildOptions
from spark_backfill.jobs.downsample.work import newest_orders
from spark_backfill.jobs.merge_late.plan import Rule, plan_packs
from spark_backfill.jobs.verify.gather import Scope, from_history
from spark_backfill.packs import PackSpan
from spark_backfill.places import Places
from tsdb.chunks.late_scan import Windows
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history import statement_metrics as metrics
from tsdb.history.interface import ChunkStore, WindowRange
from tsdb.history.open import open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.model.errors import TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION, SliceLengths

WINDOW_MS = PRODUCTION.window_ms
DAY = 6  # Windows of the span that the jobs check.
FIRST_WINDOW = 120_000  # In 2024; the day begins in the middle of a month of row keys.
SAMPLES = 240
SERIES = 5
SPLITS = 8
INTERVAL_MS = 60_000
LATE = 2  # Late fragments in each window of the day.
ROWS = DAY * (1 + LATE)  # Rows that a pack has in a block.
TIMES = (1, 2, 5, 10)
SPREAD = 0x9E3779B97F4A7C15  # Odd, so that no two packs have one id.
SLICES = SliceLengths(WINDOW_MS, WINDOW_MS)
EVER_MS = 1 << 50


@dataclass(frozen=True, slots=True)
class Fetched:
    """Counts of one job: rows, keys and bytes fetched from history, and CPU time."""

    rows: int
    keys: int
    bytes: int
    cpu_s: float


def main(argv: Sequence[str]) -> dict[str, object]:
    """Figures of each job by the size of history, in multiples of the day's rows."""
    parser = argparse.ArgumentParser(prog="bench history_growth", description=__doc__)
    parser.add_argument("--packs", type=int, default=400)
    parser.add_argument("--history", default="", help="URL of an empty history; absent: a file in a scratch folder")
    parser.add_argument("--quick", action="store_true", help="a tenth of the packs")
    arguments = parser.parse_args(argv)
    packs = arguments.packs // 10 if arguments.quick else arguments.packs
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        places = Places(history=arguments.history or f"sqlite:///{folder}/history.sqlite")
        with open_history_admin(places.history) as admin:
            ensure_history(admin, MetaSettings(1))
        result: dict[str, object] = {"packs": packs}
        held = 0
        for times in TIMES:
            with places.open_history() as history:
                for block in range(held, times):
                    write_block(history, packs, block)
            held = times
            found = fetched_by_jobs(places, packs, times)
            say(f"{times} x: {found}")
            result[f"times_{times}"] = {job: asdict(one) for job, one in found.items()}
    return result


def write_block(history: ChunkStore, packs: int, block: int) -> None:
    """Write as many rows as the day has. Block 0 is the day: a base and late fragments in each window. Others are
    imports into windows before or after the day; every second one is of packs that the day does not have.
    """
    if not block:
        keys = [(Kind.BASE, window, 1) for window in range(DAY)]
        keys += [(Kind.LATE, window, 2 + late) for late in range(LATE) for window in range(DAY)]
    else:
        first = DAY + block * ROWS if block % 4 < 2 else -block * ROWS
        keys = [(Kind.IMPORT, first + window, 10) for window in range(ROWS)]
    answers = _Answers()
    for pack in pack_ids(packs, block):
        for kind, window, order in keys:
            start_ms = (FIRST_WINDOW + window) * WINDOW_MS
            history.write(ChunkKey(pack, start_ms, kind, order, 0), _chunk(pack, start_ms, order), answers.one())
    answers.wait()


def pack_ids(packs: int, block: int) -> Iterator[int]:
    """Ids of a block's packs."""
    first = 1 if block % 2 == 0 else 1 + block * packs
    for number in range(first, first + packs):
        # Spread over all splits, as hashes are.
        yield number * SPREAD % (1 << 64)


def fetched_by_jobs(places: Places, packs: int, blocks: int) -> dict[str, Fetched]:
    """Counts of each job for the day; checks that it finds all of the day. blocks: number of blocks in history."""
    day = WindowRange(FIRST_WINDOW * WINDOW_MS, (FIRST_WINDOW + DAY) * WINDOW_MS)
    ids = sorted({pack for block in range(blocks) for pack in pack_ids(packs, block)})
    spans = [PackSpan(pack, 0, -EVER_MS, EVER_MS) for pack in ids]
    build = BuildOptions(places, "", PRODUCTION, SLICES)
    rule = Rule(day, WINDOW_MS, build.part_bytes_max, fragments_max=1 + LATE, old_ms=-EVER_MS)
    with places.open_history() as history:
        splits = history.row_splits(SPLITS)

        def verify() -> int:
            return sum(1 for _ in from_history(build, Scope(Windows(day.start_ms, day.end_ms)), splits))

        def merge_late() -> int:
            return sum(plan.fragments for plan in plan_packs(places, rule, spans))

        def downsample() -> int:
            return sum(map(len, newest_orders(history, ids, day)))

        def everything() -> int:
            return sum(len(piece) for split in splits for piece in history.scan(split))

        wanted = packs * ROWS
        return {
            "verify": _fetched(verify, wanted),
            "merge_late": _fetched(merge_late, wanted),
            "downsample": _fetched(downsample, packs * DAY),
            "control": _fetched(everything, wanted * blocks),
        }


def _fetched(job: Callable[[], int], wanted: int) -> Fetched:
    before = _counts()
    with spent() as took:
        found = job()
    assert found == wanted, f"found {found} of {wanted}"
    rows, keys, size = (_counts() - before).tolist()
    return Fetched(rows, keys, size, round(took.cpu_s, 3))


def _counts() -> NDArray[np.int64]:
    counters = metrics.read_rows_total, metrics.read_keys_total, metrics.read_bytes_total
    return np.array([one._value.get() for one in counters], np.int64)


def _chunk(pack_id: int, start_ms: int, order: int) -> bytes:
    (value,) = encode_chunk(
        Fragment(
            pack_id,
            start_ms,
            np.arange(1, SERIES + 1, dtype=np.uint64),
            np.arange(SERIES + 1, dtype=np.int64) * SAMPLES,
            np.tile(start_ms + np.arange(SAMPLES, dtype=np.int64) * INTERVAL_MS, SERIES),
            np.arange(SERIES * SAMPLES, dtype=np.float64),
            np.full(SERIES * SAMPLES, order, np.int64),
        ),
        window_ms=WINDOW_MS,
    )
    return value


class _Answers:
    """Waits for the answers of many writes."""

    def __init__(self) -> None:
        self._answered = threading.Semaphore(0)
        self._begun = 0

    def one(self) -> Callable[[TsdbError | None], None]:
        """The callback of one more write."""
        self._begun += 1
        return self._done

    def wait(self) -> None:
        """Wait for all answers."""
        for _ in range(self._begun):
            self._answered.acquire()

    def _done(self, error: TsdbError | None) -> None:
        assert error is None, error
        self._answered.release()
