"""What an exception of a handler leads to, how often a record is tried, and how long lies between two tries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tsdb.parallel_consumer.errors import GivenUp, Misused, Requeue


class Action(Enum):
    """What becomes of a record whose handler raised."""

    RETRY = "retry"  # Again after a pause, a bounded number of times; its lane waits.
    BLOCK = "block"  # Again until it succeeds: something that all need is away. Keeps its place among the running.
    DEAD_LETTER = "dead_letter"  # To the dead letters with its whole story; its lane goes on.
    SKIP = "skip"  # Counted and finished.
    REQUEUE = "requeue"  # To the end of its own topic, a bounded number of times; its lane goes on.
    FATAL = "fatal"  # The consumer ends.


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that grow: first_s, times `factor` each time, at most longest_s; each up to `jitter` shorter at random."""

    first_s: float = 0.1
    longest_s: float = 30.0
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.longest_s and self.factor >= 1 and 0 <= self.jitter < 1):
            raise Misused(f"{self}: needs 0 < first_s <= longest_s, factor >= 1, 0 <= jitter < 1")

    def delay_s(self, number: int, source: random.Random) -> float:
        """The pause after the number-th failure in a row, from 1."""
        # The exponent is bounded: an outage of hours must not overflow a float.
        longest = min(self.longest_s, self.first_s * self.factor ** min(number - 1, 64))
        return longest * (1 - self.jitter * source.random())


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """actions: by class of exception; the nearest base class decides, `default` where there is none.

    attempts_max: how often `retry` runs a record in all before `exhausted` is done with it. crashes_max: a record that
    was running at so many ends of the process goes to the dead letters; None: crashes are not counted, which saves the
    commits before the first records of an assignment are handled. requeues_max: how often a record goes round.
    """

    actions: Mapping[type[BaseException], Action] = field(default_factory=dict)
    default: Action = Action.RETRY
    attempts_max: int = 5
    exhausted: Action = Action.DEAD_LETTER
    crashes_max: int | None = 3
    requeues_max: int = 3
    retry_backoff: Backoff = field(default_factory=Backoff)
    block_backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.2))

    def __post_init__(self) -> None:
        if self.attempts_max < 1 or self.requeues_max < 1:
            raise Misused("attempts_max and requeues_max are 1 or more")
        if self.crashes_max is not None and self.crashes_max < 2:
            # The first end of a process cannot tell the one that caused it from those that ran beside it.
            raise Misused("crashes_max is 2 or more")
        if self.exhausted in (Action.RETRY, Action.REQUEUE):
            raise Misused(f"exhausted attempts cannot end in {self.exhausted.value}: that would begin them anew")

    def action(self, error: BaseException) -> Action:
        """What this exception leads to. What is no Exception (an interpreter that ends) is fatal."""
        for base in type(error).__mro__:
            if base in self.actions:
                return self.actions[base]
            if base is Requeue:
                return Action.REQUEUE
            if base is GivenUp:
                return Action.DEAD_LETTER
        return self.default if isinstance(error, Exception) else Action.FATAL

    @property
    def sends(self) -> bool:
        """Whether a record may have to be sent somewhere."""
        used = {*self.actions.values(), self.default, self.exhausted}
        return self.crashes_max is not None or bool(used & {Action.DEAD_LETTER, Action.REQUEUE})
