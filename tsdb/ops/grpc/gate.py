"""The gate of a gRPC server: while it is closed, each call is refused with the same error."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.model.errors import TsdbError


class Gate:
    """Open until `close`. Any thread may change or check it."""

    def __init__(self) -> None:
        self._refusal: Callable[[], TsdbError] | None = None

    def close(self, refusal: Callable[[], TsdbError]) -> None:
        """Refuse calls from now on. `refusal` makes the error of one call."""
        self._refusal = refusal

    def open(self) -> None:
        self._refusal = None

    def check(self) -> None:
        """Raises the error of a refused call."""
        refusal = self._refusal
        if refusal is not None:
            raise refusal()
