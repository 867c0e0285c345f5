"""Selectors and read options of a caller, as wire messages."""

from __future__ import annotations

from collections.abc import Iterable

from tsdb.answer.spec import ReadOptions
from tsdb.model.selector import Matcher
from tsdb.selector.selectors import parse_selector
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.state import encode_matchers, encode_options

Selector = str | Iterable[Matcher]


def wire_options(options: ReadOptions | None) -> reader_pb2.ReadOptions | None:
    """The wire message; None without options."""
    return None if options is None else encode_options(options)


def wire_matchers(selector: Selector) -> list[common_pb2.Matcher]:
    """Wire matchers of a selector, given as text or as matchers. Raises InvalidRequest (bad_selector,
    selector_too_broad)."""
    return encode_matchers(parse_selector(selector) if isinstance(selector, str) else selector)
