"""Pace: measures how long a handler computes, and decides whether other processes should run it. Pure.

A high cost of the handler suggests a hand-over; the finished work of the processes proves its use. While records are
handed over, handler seconds divided by elapsed seconds is the speed-up over a single loop. Hot keys, a slow source, or
cores used by others reduce it: then records stay in this process for a while.
"""

from __future__ import annotations

# A record of 100 us gains nothing from two cores, one of 1 ms a fifth and more (bench/consumer/pc_overhead.py): a
# hand-over costs some 20 us in each process, and threads that talk to processes compete with ours.
WORTH_FROM_S = 200e-6
NOT_WORTH_FROM_S = 100e-6  # Hysteresis, so that a handler between the two bounds does not switch back and forth.
WEIGHT = 0.2
CHUNK_S = 0.005  # Long enough to pay for the hand-over, short enough to share a poll among the processes.
CHUNK_RECORDS_MAX = 256
PROOF_S = 0.5  # Time between checks of the speed-up.
GAIN_MIN = 1.15
STAY_S = 10.0  # Time without hand-over after too small a speed-up; it doubles each time.
STAY_S_MAX = 600.0


class Pace:
    """`mean_s`: recent mean seconds of a record. processes: number of processes; a single one gains nothing."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._handler_s = 0.0
        self._proof_from = 0.0
        self._proven = False
        self._stay_until = 0.0
        self._stay_s = STAY_S
        self.mean_s: float | None = None
        self.hands_over = False

    def took(self, seconds: float, records: int) -> None:
        """`records` took `seconds` of processor time, in any process."""
        each_s = seconds / records
        self.mean_s = each_s if self.mean_s is None else self.mean_s + WEIGHT * (each_s - self.mean_s)
        self._handler_s += seconds

    def decide(self, now: float) -> bool:
        """Whether to hand over from `now` on, in monotonic seconds."""
        if self.mean_s is None or self._processes < 2:
            return False
        worth_from_s = NOT_WORTH_FROM_S if self.hands_over else WORTH_FROM_S
        wanted = self.mean_s >= worth_from_s and now >= self._stay_until
        if wanted and not self.hands_over:
            self._handler_s, self._proof_from, self._proven = 0.0, now, False
        elif wanted and not self._handler_s:
            self._proof_from = now  # The processes are still starting.
        elif wanted and now - self._proof_from >= PROOF_S:
            wanted = self._prove(now - self._proof_from, now)
        self.hands_over = wanted
        return wanted

    def chunk_records(self, waiting: int) -> int:
        """How many waiting records go to one process at a time."""
        fair = -(-waiting // self._processes)
        worth = int(CHUNK_S / self.mean_s) if self.mean_s else CHUNK_RECORDS_MAX
        return max(1, min(fair, worth, CHUNK_RECORDS_MAX))

    def _prove(self, seconds: float, now: float) -> bool:
        gain = self._handler_s / seconds
        self._handler_s, self._proof_from = 0.0, now
        first, self._proven = not self._proven, True
        if first or gain >= GAIN_MIN:
            # During the first interval some processes are still starting.
            self._stay_s = self._stay_s if first else STAY_S
            return True
        self._stay_until = now + self._stay_s
        self._stay_s = min(self._stay_s * 2, STAY_S_MAX)
        return False
