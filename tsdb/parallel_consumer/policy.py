"""ErrorPolicy: decides the action after an exception of a handler, the number of attempts, and the pauses between
them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tsdb.parallel_consumer.errors import DeadLettered, InvalidConfig, Requeue


class Action(Enum):
    """Action on a record whose handler raised."""

    RETRY = "retry"  # Try again after a pause, a bounded number of times; its lane waits.
    BLOCK = "block"  # Try again until it succeeds: a shared dependency is down. The record keeps its slot.
    DEAD_LETTER = "dead_letter"  # Send to the dead letters with the failure in headers; its lane goes on.
    SKIP = "skip"  # Count it and finish it.
    REQUEUE = "requeue"  # Send to the end of its topic, a bounded number of times; its lane goes on.
    FATAL = "fatal"  # End the consumer.


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing pauses. The first is first_s; each next one is `factor` times longer, up to longest_s; each is shortened
    at random by up to `jitter`."""

    first_s: float = 0.1
    longest_s: float = 30.0
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.longest_s and self.factor >= 1 and 0 <= self.jitter < 1):
            raise InvalidConfig(f"{self}: needs 0 < first_s <= longest_s, factor >= 1, 0 <= jitter < 1")

    def delay_s(self, number: int, source: random.Random) -> float:
        """The pause after failure `number` in a row, counted from 1."""
        # Bound the exponent: an outage of hours must not overflow a float.
        longest = min(self.longest_s, self.first_s * self.factor ** min(number - 1, 64))
        return longest * (1 - self.jitter * source.random())


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """actions: by exception class; the nearest base class decides, else `default`.

    attempts_max: total attempts of a record under `retry` before `exhausted` applies. crashes_max: a record that was
    running in this many process crashes goes to the dead letters; None: crashes are not counted, which saves the
    commits before the first records of an assignment are handled. requeues_max: how often a record may be requeued.
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
            raise InvalidConfig("attempts_max and requeues_max are 1 or more")
        if self.crashes_max is not None and self.crashes_max < 2:
            # The first crash cannot separate its cause from the records that ran beside it.
            raise InvalidConfig("crashes_max is 2 or more")
        if self.exhausted in (Action.RETRY, Action.REQUEUE):
            raise InvalidConfig(f"exhausted attempts cannot end in {self.exhausted.value}: attempts would start again")

    def action(self, error: BaseException) -> Action:
        """The action for this exception. An exception that is not an `Exception` (interpreter exit) is fatal."""
        for base in type(error).__mro__:
            if base in self.actions:
                return self.actions[base]
            if base is Requeue:
                return Action.REQUEUE
            if base is DeadLettered:
                return Action.DEAD_LETTER
        return self.default if isinstance(error, Exception) else Action.FATAL

    @property
    def sends(self) -> bool:
        """Whether any action may send a record."""
        used = {*self.actions.values(), self.default, self.exhausted}
        return self.crashes_max is not None or bool(used & {Action.DEAD_LETTER, Action.REQUEUE})
