"""Bad arguments become InvalidRequest, like every other problem of a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tsdb.model.errors import InvalidRequest


@contextmanager
def arguments_of(what: str) -> Iterator[None]:
    """Raises InvalidRequest (bad_argument) for values of a wrong type or size. Also usable as a decorator."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InvalidRequest(f"{what}: {error}", reason="bad_argument") from error
