"""Read options and selectors, and their conversion to wire messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsdb.model.selector import Matcher
from tsdb.v1 import common_pb2, reader_pb2

Selector = str | Iterable[Matcher]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Deviations from an exact and fresh answer that the caller accepts. The default accepts no deviation.

    after: tokens of writes that the answer must contain; the server waits for them within the timeout.
    allow_stale: answer although a partition lags. max_lag_ms: refuse above this lag; None: the server's bound.
    allow_holes: answer although a named loss touches the range. partitions: read only these; empty: all of the server.

    """

    after: Sequence[common_pb2.Token] = ()
    allow_stale: bool = False
    max_lag_ms: int | None = None
    allow_holes: bool = False
    partitions: Sequence[int] = ()

    def to_wire(self) -> reader_pb2.ReadOptions:
        return reader_pb2.ReadOptions(
            allow_stale=self.allow_stale,
            max_lag_ms=self.max_lag_ms,
            after=self.after,
            allow_holes=self.allow_holes,
            partitions=self.partitions,
        )


def wire_options(options: ReadOptions | None) -> reader_pb2.ReadOptions | None:
    """The wire message; None without options."""
    return None if options is None else options.to_wire()


def wire_matchers(selector: Selector) -> list[common_pb2.Matcher]:
    """Wire matchers of a selector, given as text or as matchers. Raises InvalidRequest (bad_selector)."""
    if isinstance(selector, str):
        # Imported here: a server of reads has matchers and needs no grammar.
        from tsdb.selector.selectors import parse_selector

        selector = parse_selector(selector)
    return [
        common_pb2.Matcher(
            type=common_pb2.Matcher.Type.ValueType(matcher.type.value), name=matcher.name, value=matcher.value
        )
        for matcher in selector
    ]
