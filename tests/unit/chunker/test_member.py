"""The thread of a chunker: an error of the group about a partition that was just given up changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, cast

from chunker.member import Member
from chunker.partition import ChunkPartition, WriteState
from support.servers.logs import WITHIN_S
from tsdb.log.interface import METRICS, Group, GroupListener
from tsdb.model.clock import SystemClock
from tsdb.model.errors import LostOffsets


class LosingGroup:
    """Assigns partition 0, revokes it in the first poll, and reports its offsets lost in the same poll."""

    def __init__(self) -> None:
        self.polled_again = threading.Event()
        self._polls = 0

    def join(
        self, topics: Collection[str], listener: GroupListener, followers: Mapping[str, str] | None = None
    ) -> None:
        self._listener = listener
        listener.on_assigned({(METRICS, 0): None})

    def poll(self, timeout_s: float, **_: Any) -> list[Any]:
        self._polls += 1
        if self._polls == 1:
            self._listener.on_revoked([(METRICS, 0)])
            raise LostOffsets("trimmed", reason="below_low_watermark", partition=0)
        self.polled_again.set()
        return []

    def is_spare(self) -> bool:
        return False

    def wake(self) -> None:
        pass

    def leave(self) -> None:
        pass


class IdlePartition:
    """A partition without work."""

    stage = None

    def rest_s(self) -> float:
        return 0.0

    def step(self) -> WriteState:
        return WriteState.IDLE

    def give_up(self) -> None:
        pass

    def drain(self) -> bool:
        return True


def test_lost_offsets_of_a_partition_given_up_in_the_same_poll_are_ignored() -> None:
    group = LosingGroup()
    made = cast(ChunkPartition, IdlePartition())
    member = Member(cast(Group, group), lambda _: made, threading.Event(), SystemClock(), 100)
    member.start()
    polled = group.polled_again.wait(60.0)
    member.close()
    assert member.join(WITHIN_S)
    assert member.failure() is None
    assert polled
