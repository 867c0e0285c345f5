"""Capture: the messages of one answer, kept for a comparison within a budget of bytes that all captures share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

from tsdb.client.call import Method
from tsdb.ops.byte_budget import ByteBudget


@dataclass(frozen=True, slots=True)
class Captured:
    """A whole answer. messages: makes its messages. at_ms: time of its end. seconds: its duration. size: its bytes."""

    method: Method
    request: Message
    messages: Callable[[], Iterable[Message | bytes]]
    at_ms: int
    seconds: float
    size: int


class Capture:
    """Used by the thread of its read. `lost`: the budget was too small; all bytes are released, and no message is
    kept."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.messages: list[Message | bytes] = []
        self.size = 0
        self.lost = False

    def add(self, message: Message | bytes) -> None:
        if self.lost:
            return
        size = len(message) if isinstance(message, bytes) else message.ByteSize()
        if self._budget.take(size):
            self.messages.append(message)
            self.size += size
        else:
            self.drop()

    def drop(self) -> None:
        """Give all bytes back, and keep nothing of the answer."""
        self._budget.give_back(self.size)
        self.messages, self.size, self.lost = [], 0, True
