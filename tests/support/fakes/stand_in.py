"""A wrapper of a log or a history that changes one method and passes all other calls on."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class StandIn:
    """A context manager; leaving it closes the wrapped object."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._real.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
