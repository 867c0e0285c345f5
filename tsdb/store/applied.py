"""Applied: wakes readers that wait for records to become visible."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tsdb.index.pair_search import CheckGoing, go_on
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.store.partition import Partition


class AppliedSignal:
    """One condition for the process: workers notify after each step, `Select.after` and `Watch` wait."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._changed = threading.Condition()
        self._generation = 0
        self._closed = False

    def close(self) -> None:
        """The store is ending: waiting readers are woken and refused."""
        self._closed = True
        self.notify()

    def check_open(self) -> None:
        """Raises Unavailable (draining) once the store is ending."""
        if self._closed:
            raise Unavailable("the store is ending; ask another replica", reason="draining", retry_after_s=0.5)

    def notify(self) -> None:
        """Wake the waiting readers: records became visible."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def generation(self) -> int:
        """A number to pass to `wait`, so that a change before the wait is not missed."""
        with self._changed:
            return self._generation

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return when records were applied since generation `seen`, or after timeout_s."""
        with self._changed:
            if self._generation == seen:
                self._changed.wait(timeout_s)

    def has(self, partitions: Mapping[int, Partition], tokens: Mapping[int, int]) -> bool:
        """Whether each partition has applied the record at its offset."""
        return all(_is_applied(partitions[partition], offset) for partition, offset in tokens.items())

    def wait_for(
        self,
        partitions: Mapping[int, Partition],
        tokens: Mapping[int, int],
        timeout_s: float,
        check_going: CheckGoing = go_on,
    ) -> None:
        """Wait until each partition has applied the record at its offset. check_going: called at every change.

        Raises Unavailable: not_applied after timeout_s; at once, with its reason, when a partition has stopped.
        """
        give_up_at = self.clock.monotonic() + timeout_s
        while True:
            seen = self.generation()
            missing = {p: offset for p, offset in tokens.items() if not _is_applied(partitions[p], offset)}
            if not missing:
                return
            self.check_open()
            check_going()
            for number in missing:
                partitions[number].check_going()
            left = give_up_at - self.clock.monotonic()
            if left <= 0:
                partition, offset = next(iter(missing.items()))
                raise Unavailable(
                    f"record_offset {offset} of partition {partition} was not applied within {timeout_s:g} s",
                    reason="not_applied",
                    retry_after_s=0.5,
                    partition=partition,
                    record_offset=offset,
                )
            self.wait(seen, left)


def _is_applied(partition: Partition, record_offset: int) -> bool:
    # The applied offset does not suffice: after a fresh start the record may be below what the head has.
    return partition.head.next_offset > record_offset
