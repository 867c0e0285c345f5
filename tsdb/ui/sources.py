"""UiSources: the data that pages show beside the answers of queries. UiOptions: the bounds of the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tsdb.model import defaults
from tsdb.reader.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2


class Setting(Protocol):
    """One setting as text. default: None when it is required."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def default(self) -> str | None: ...

    @property
    def help(self) -> str: ...


@dataclass(frozen=True, slots=True)
class UiSources:
    """states: states of the partitions that reads would choose now, at most a second old; they cost no call.

    coverage: coverage with history and the chunk stage, by calls that the caller bounds. has_history: whether there is
    a history. partitions: number of partitions of the log. role: role of the process. settings: settings in effect,
    secrets masked.
    """

    states: Callable[[], Sequence[common_pb2.PartitionState]]
    coverage: Callable[[Caller], reader_pb2.CoverageResponse]
    has_history: bool
    partitions: int
    role: str
    settings: Callable[[], Sequence[Setting]]


@dataclass(frozen=True, slots=True)
class UiOptions:
    """points_max: drawn points of one graph; above it points are reduced. series_max: drawn series of one graph.
    rows_max: rows of one table. exemplar_link: template of the links of exemplars. is_secure: whether the server has
    TLS. has_tokens: whether callers need one."""

    points_max: int = defaults.UI_POINTS_MAX
    series_max: int = defaults.UI_SERIES_MAX
    rows_max: int = defaults.UI_ROWS_MAX
    exemplar_link: str = ""
    is_secure: bool = False
    has_tokens: bool = False
