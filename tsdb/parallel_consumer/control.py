"""Control: settings that may change while a consumer runs. Checked on construction; a change takes effect at the next
step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.record import TopicPartition

UNLIMITED = -1.0
STOPPED = 0.0


@dataclass(frozen=True, slots=True)
class Control:
    """Rates count the records that begin each second, retries included; -1 means unlimited, 0 none.

    slots: records handled at once; None: Options.concurrency. paused: no record begins, running ones go on.
    paused_partitions: partitions whose records do not begin. rate: the rate limit of the whole consumer.
    partition_rate: the rate limit of each partition. key_quota: the key quota of each key; key_quotas: the key quotas
    of single keys, instead of key_quota. quota_burst_s: this many seconds' worth may come at once. over_quota_topic:
    records above their quota are sent there instead of waiting; their key loses its order. blocked_keys: records of
    these keys are not handled but become dead letters, or, with skip_blocked, are finished at once. newest_wins_s: a
    record waits this long for a newer one of its key, which replaces it; 0: all records are handled. breaker_failures:
    after this many failures in a row no record begins for breaker_open_s, then a single one does; if that fails too,
    the pause doubles, up to breaker_open_s_max; 0: no breaker.
    """

    slots: int | None = None
    paused: bool = False
    paused_partitions: frozenset[TopicPartition] = frozenset()
    rate: float = UNLIMITED
    partition_rate: float = UNLIMITED
    key_quota: float = UNLIMITED
    key_quotas: Mapping[bytes, float] = field(default_factory=dict)
    quota_burst_s: float = 1.0
    over_quota_topic: str = ""
    blocked_keys: frozenset[bytes] = frozenset()
    skip_blocked: bool = False
    newest_wins_s: float = 0.0
    breaker_failures: int = 0
    breaker_open_s: float = 5.0
    breaker_open_s_max: float = 60.0

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise InvalidConfig(f"slots is {self.slots}; legal: 1 and more")
        rates = {"rate": self.rate, "partition_rate": self.partition_rate, "key_quota": self.key_quota}
        rates |= {f"key_quotas[{key!r}]": rate for key, rate in self.key_quotas.items()}
        for name, rate in rates.items():
            if not math.isfinite(rate) or (rate < 0 and rate != UNLIMITED):
                raise InvalidConfig(f"{name} is {rate}; legal: -1 (unlimited), 0 (none), or records per second")
        for name in ("quota_burst_s", "newest_wins_s", "breaker_failures", "breaker_open_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InvalidConfig(f"{name} is {value}; legal: 0 and more")
        if not self.breaker_open_s <= self.breaker_open_s_max < math.inf:
            raise InvalidConfig(f"breaker_open_s_max is {self.breaker_open_s_max}, below breaker_open_s")

    @property
    def limits(self) -> bool:
        """Whether any record may have to wait, or is not handled at all."""
        free = self.rate == self.partition_rate == self.key_quota == UNLIMITED
        return not free or bool(self.key_quotas or self.blocked_keys or self.paused_partitions)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Control:
        """Build it from the table of a control file: names as above, keys as text (UTF-8), partitions as
        "topic/number".

        Raises InvalidConfig for an unknown name, a value of another type, or a value out of range.

        """
        known = {one.name for one in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name not in known:
                raise InvalidConfig(f"{name} is no setting; settings: {', '.join(sorted(known))}")
            values[name] = _READERS.get(name, _number)(name, value)
        return cls(**values)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidConfig(f"{name} is {value!r}; it is a number")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(f"{name} is {value!r}; it is a whole number")
    return value


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfig(f"{name} is {value!r}; it is true or false")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} is {value!r}; it is a text")
    return value


def _keys(name: str, value: Any) -> frozenset[bytes]:
    if not isinstance(value, list):
        raise InvalidConfig(f"{name} is {value!r}; it is a list of texts")
    return frozenset(_text(name, one).encode() for one in value)


def _quotas(name: str, value: Any) -> dict[bytes, float]:
    if not isinstance(value, dict):
        raise InvalidConfig(f"{name} is {value!r}; it is a table of keys and numbers")
    return {key.encode(): _number(f"{name}[{key}]", rate) for key, rate in value.items()}


def _partitions(name: str, value: Any) -> frozenset[TopicPartition]:
    if not isinstance(value, list):
        raise InvalidConfig(f"{name} is {value!r}; it is a list of texts")
    found = set()
    for one in value:
        topic, _, number = _text(name, one).rpartition("/")
        if not topic or not number.isascii() or not number.isdigit():
            raise InvalidConfig(f"{name} has {one!r}; a partition is written topic/number")
        found.add((topic, int(number)))
    return frozenset(found)


_READERS: Mapping[str, Any] = {
    "slots": _whole,
    "paused": _switch,
    "paused_partitions": _partitions,
    "key_quotas": _quotas,
    "over_quota_topic": _text,
    "blocked_keys": _keys,
    "skip_blocked": _switch,
    "breaker_failures": _whole,
}
