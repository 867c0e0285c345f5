"""Pace: how long a handler computes, and whether handing it over to other processes is worth it. Pure.

What a handler costs suggests it; what the processes get done proves it. While records are handed over, the seconds that
handlers computed, over those that passed, are how much faster than one loop it goes. Keys that are hot, a source that
gives little, or cores that others use make that less than it should be: then the records stay here for a while.
"""

from __future__ import annotations

# A record of 100 us gains nothing from two cores, one of 1 ms a fifth and more (bench/pc_overhead.py): handing
# over costs some 20 us here and as much there, and threads that talk to processes take turns with ours.
WORTH_FROM_S = 200e-6
NOT_WORTH_FROM_S = 100e-6  # Apart, so that a handler in between does not go to and fro.
WEIGHT = 0.2
CHUNK_S = 0.005  # Long enough to pay for its way, short enough to share a poll among the processes.
CHUNK_RECORDS_MAX = 256
PROOF_S = 0.5  # Between looks at what handing over brings.
GAIN_MIN = 1.15
STAY_S = 10.0  # After it brought too little; twice as long each time.
STAY_S_MAX = 600.0


class Pace:
    """`mean_s`: of one record, lately. processes: that could take records; with one alone nothing is gained."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._worked_s = 0.0
        self._proof_from = 0.0
        self._proven = False
        self._stay_until = 0.0
        self._stay_s = STAY_S
        self.mean_s: float | None = None
        self.hands_over = False

    def took(self, seconds: float, records: int) -> None:
        """So many records took so many seconds of a processor, in whichever process."""
        each_s = seconds / records
        self.mean_s = each_s if self.mean_s is None else self.mean_s + WEIGHT * (each_s - self.mean_s)
        self._worked_s += seconds

    def decide(self, now: float) -> bool:
        """Whether to hand over from now on, monotonic seconds."""
        if self.mean_s is None or self._processes < 2:
            return False
        worth_from_s = NOT_WORTH_FROM_S if self.hands_over else WORTH_FROM_S
        wanted = self.mean_s >= worth_from_s and now >= self._stay_until
        if wanted and not self.hands_over:
            self._worked_s, self._proof_from, self._proven = 0.0, now, False
        elif wanted and not self._worked_s:
            self._proof_from = now  # The processes are starting.
        elif wanted and now - self._proof_from >= PROOF_S:
            wanted = self._prove(now - self._proof_from, now)
        self.hands_over = wanted
        return wanted

    def chunk_records(self, waiting: int) -> int:
        """How many of those that wait go to one process at a time."""
        fair = -(-waiting // self._processes)
        worth = int(CHUNK_S / self.mean_s) if self.mean_s else CHUNK_RECORDS_MAX
        return max(1, min(fair, worth, CHUNK_RECORDS_MAX))

    def _prove(self, seconds: float, now: float) -> bool:
        gain = self._worked_s / seconds
        self._worked_s, self._proof_from = 0.0, now
        first, self._proven = not self._proven, True
        if first or gain >= GAIN_MIN:
            # In the first stretch some processes still start.
            self._stay_s = self._stay_s if first else STAY_S
            return True
        self._stay_until = now + self._stay_s
        self._stay_s = min(self._stay_s * 2, STAY_S_MAX)
        return False
