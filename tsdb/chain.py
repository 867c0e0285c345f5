"""Chain: measures the end-to-end latency of a message over all services that it passed; the message's headers carry it.

A service reads the headers of a consumed message (`read`), begins a stage with one or more of them (`begin`), and puts
the stage's headers on each message that it produces (`produce`). This module has no dependencies. Layout and
arithmetic: docs/formats/chain-headers.md. An invalid header is counted and read as absent; it never raises.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeVar

Value = TypeVar("Value")
Headers = Sequence[tuple[str, bytes | None]]
Written = list[tuple[str, bytes]]

INT8_MAX = (1 << 7) - 1
INT64_MAX = (1 << 63) - 1
TTL_HOPS = 20  # Longest chain in hops; this cuts loops.
HOP_COUNT_ABSENT = 1
TTL_HOPS_ABSENT = TTL_HOPS - 1
APART_MS_MAX = 50  # Tolerance for clock differences and unmeasured queues.
TRACE_BYTES_MAX = 1_024
TIMES_CACHED = 512

# Reasons that `count` gets.
MALFORMED = "malformed"
OUT_OF_RANGE = "out_of_range"
CLOCK_BEHIND = "clock_behind"  # An earlier time is after now, so the difference counts as 0.
UNBALANCED = "unbalanced"  # The total differs from processing + wait by more than APART_MS_MAX.
LOOP_PROTECTION = "loop_protection"
REASONS = (MALFORMED, OUT_OF_RANGE, CLOCK_BEHIND, UNBALANCED, LOOP_PROTECTION)

_DIGITS_MAX = len(str(INT64_MAX))
_TIME_BYTES = len("2026-01-02T03:04:05.678Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TRACE = re.compile(rb"[A-Za-z0-9._-]+:\d{1,19}:\d{1,19}(?:,[A-Za-z0-9._-]+:\d{1,19}:\d{1,19})*")
_ZERO = ord("0")
_WHOLE = re.compile(rb"-?[1-9][0-9]*")
_SMALL = tuple(b"%d" % number for number in range(INT8_MAX + 1))
_SMALL_OF = {text: number for number, text in enumerate(_SMALL)}
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


class Mode(Enum):
    """Headers to write. Reading does not depend on the mode."""

    OFF = "off"
    TREE = "tree"  # Origin and total only. Loops are not cut, because hops are not counted.
    FULL = "full"
    # FULL, and also service, wait and time of each hop. The oldest hops are left out at TRACE_BYTES_MAX.
    DEBUG = "debug"


class Link(NamedTuple):
    """The chain of a consumed message, from its headers. Times are ms since the epoch, UTC; durations are ms.

    created_at_ms: the producer's time; None: unknown. origin_ms: creation of the first message of the chain.
    hop_count, ttl_hops: 0 to INT8_MAX. due_at_ms: time by which the message should reach its destination. whole:
    processing_ms and wait_ms include all of the chain.
    """

    created_at_ms: int | None = None
    origin_ms: int | None = None
    processing_ms: int = 0
    wait_ms: int = 0
    hop_count: int = HOP_COUNT_ABSENT
    ttl_hops: int = TTL_HOPS_ABSENT
    due_at_ms: int | None = None
    trace: bytes = b""
    whole: bool = True

    @property
    def since_ms(self) -> int | None:
        """Start of the chain, ms since the epoch; None: unknown."""
        return self.created_at_ms if self.origin_ms is None else self.origin_ms

    @property
    def total_ms(self) -> int:
        """Time from the start of the chain to the creation of this message, at least 0."""
        if self.created_at_ms is None or self.origin_ms is None:
            return 0
        return max(0, self.created_at_ms - self.origin_ms)


def _ignore_reason(reason: str) -> None:
    """The default of `count`: does nothing."""


class Chain:
    """Reads and writes the headers of one service of one system. Thread-safe. Raises ValueError for ids that headers
    cannot carry.

    system_id: id of all services that share these headers. service_id: id of this service. count(reason): called with
    one of REASONS for each ignored or clamped value. now_ms: wall clock, ms since the epoch. monotonic_ns: a clock that
    never steps.

    """

    def __init__(
        self,
        system_id: str,
        service_id: str,
        mode: Mode = Mode.FULL,
        *,
        count: Callable[[str], None] = _ignore_reason,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        for name in (system_id, service_id):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no id of a chain: 1 to 64 letters, digits, dots, dashes, underscores")
        self.mode = mode
        self.count = count
        self.now_ms = now_ms
        self.monotonic_ns = monotonic_ns
        self.prefix = prefix = f"x-{system_id}-"
        self.service_id = service_id.encode()
        self.created_at = f"{prefix}created-at"
        self.source = f"{prefix}source-service-id"
        self.origin = f"{prefix}chain-origin-created-at"
        self.total = f"{prefix}chain-total-ms"
        self.processing = f"{prefix}chain-processing-ms"
        self.wait = f"{prefix}chain-wait-ms"
        self.stage = f"{prefix}chain-stage-duration-ms"
        self.hops = f"{prefix}chain-hop-count"
        self.ttl = f"{prefix}chain-ttl-hops"
        self.due_at = f"{prefix}chain-due-at"
        self.trace = f"{prefix}chain-trace"

    def first(self, *, due_at_ms: int | None = None) -> Written:
        """Headers of a message that begins a chain. Headers at their default are absent."""
        if self.mode is Mode.OFF:
            return []
        written = [(self.created_at, header_time(self.now_ms())), (self.source, self.service_id)]
        if due_at_ms is not None:
            written.append((self.due_at, header_time(due_at_ms)))
        return written

    def read(self, headers: Headers, created_at_ms: int | None = None) -> Link:
        """Read the chain of a message. Of repeated headers the last counts. created_at_ms: default of the header.

        The total header is not read: it follows from the two times.
        """
        found = dict(headers).get
        created_at, origin, due_at = found(self.created_at), found(self.origin), found(self.due_at)
        processing, wait, trace = found(self.processing), found(self.wait), found(self.trace)
        hops, ttl = found(self.hops), found(self.ttl)
        # Equal to Link(), at half the cost.
        values = (
            created_at_ms if created_at is None else self._time(created_at, created_at_ms),
            None if origin is None else self._time(origin, None),
            0 if processing is None else self._number(processing, INT64_MAX, 0),
            0 if wait is None else self._number(wait, INT64_MAX, 0),
            HOP_COUNT_ABSENT if hops is None else self._small(hops, HOP_COUNT_ABSENT),
            TTL_HOPS_ABSENT if ttl is None else self._small(ttl, TTL_HOPS_ABSENT),
            None if due_at is None else self._time(due_at, None),
            b"" if trace is None else self._trace(trace),
            origin is None or not (processing is None or wait is None),
        )
        return tuple.__new__(Link, values)

    def begin(self, link: Link, *others: Link) -> Stage:
        """Begin the work on a consumed message, now. Several links mean that several messages become one."""
        now = self.now_ms()
        if others:
            return Stage(self, *_joined(self, (link, *others), now), self.monotonic_ns())
        created_at = link.created_at_ms
        own_wait_ms = (
            now - created_at if created_at is not None and created_at <= now else self.apart_ms(now, created_at)
        )
        return Stage(self, link, own_wait_ms, self.monotonic_ns())

    def without(self, headers: Sequence[tuple[str, Value]]) -> list[tuple[str, Value]]:
        """The headers that are not of this chain, to pass on beside those of a stage."""
        own = (self.created_at, self.source, f"{self.prefix}chain-")
        return [header for header in headers if not header[0].startswith(own)]

    def apart_ms(self, now_ms: int, then_ms: int | None) -> int:
        """now - then, at least 0. A negative difference is counted."""
        if then_ms is None or then_ms == now_ms:
            return 0
        if then_ms > now_ms:
            self.count(CLOCK_BEHIND)
            return 0
        return now_ms - then_ms

    def _small(self, data: bytes, absent: int) -> int:
        small = _SMALL_OF.get(data)
        return self._number(data, INT8_MAX, absent) if small is None else small

    def _number(self, data: bytes, highest: int, absent: int) -> int:
        # bytes.isdigit accepts ASCII digits only; int() would accept spaces, signs and underscores.
        if data.isdigit() and len(data) <= _DIGITS_MAX and (data[0] != _ZERO or len(data) == 1):
            value = int(data)
            if value <= highest:
                return value
        self.count(OUT_OF_RANGE if _WHOLE.fullmatch(data) else MALFORMED)
        return absent

    def _time(self, data: bytes, absent: int | None) -> int | None:
        value = parse_header_time(data)
        if value is None:
            self.count(MALFORMED)
            return absent
        return value

    def _trace(self, data: bytes) -> bytes:
        if len(data) <= TRACE_BYTES_MAX and _TRACE.fullmatch(data):
            return data
        self.count(MALFORMED if len(data) <= TRACE_BYTES_MAX else OUT_OF_RANGE)
        return b""


class Stage:
    """One service's work on one message, or on several that become one. Used by one thread at a time.

    expired: the message has no hops left: do no work, and give it up with reason LOOP_PROTECTION. wait_ms: wait of the
    whole chain, this hop included.
    """

    __slots__ = ("_begun_ns", "_chain", "_link", "_own_wait_ms", "expired", "wait_ms")

    def __init__(self, chain: Chain, link: Link, own_wait_ms: int, begun_ns: int) -> None:
        self._chain = chain
        self._link = link
        self._begun_ns = begun_ns
        self._own_wait_ms = own_wait_ms
        self.wait_ms = link.wait_ms + own_wait_ms
        self.expired = link.ttl_hops <= 0
        if self.expired:
            chain.count(LOOP_PROTECTION)

    def produce(self, *, public: bool = False, due_at_ms: int | None = None) -> Written:
        """Headers of one produced message; call it for each child of a stage. public: whether the readers are outside
        the system.

        A repeated attempt is not a hop, so its message keeps its headers.
        """
        chain, link = self._chain, self._link
        if chain.mode is Mode.OFF:
            return []
        now = chain.now_ms()
        origin = link.origin_ms if link.origin_ms is not None else link.created_at_ms
        total = now - origin if origin is not None and origin <= now else chain.apart_ms(now, origin)
        written = [
            (chain.created_at, header_time(now)),
            (chain.origin, header_time(now if origin is None else origin)),
            (chain.total, b"%d" % total),
        ]
        if public:
            return written
        written.append((chain.source, chain.service_id))
        if due_at_ms is not None:
            written.append((chain.due_at, header_time(due_at_ms)))
        if chain.mode is not Mode.TREE:
            self._add_sums(written, total)
        return written

    def _add_sums(self, written: Written, total_ms: int) -> None:
        chain, link, wait = self._chain, self._link, self.wait_ms
        spent_ms = (chain.monotonic_ns() - self._begun_ns + 500_000) // 1_000_000
        processing = link.processing_ms + spent_ms
        if link.whole and not -APART_MS_MAX <= total_ms - processing - wait <= APART_MS_MAX:
            chain.count(UNBALANCED)
        hops, ttl = link.hop_count, link.ttl_hops
        written += (
            (chain.processing, b"%d" % (processing if processing < INT64_MAX else INT64_MAX)),
            (chain.wait, b"%d" % (wait if wait < INT64_MAX else INT64_MAX)),
            (chain.stage, b"%d" % spent_ms),
            (chain.hops, _SMALL[hops + 1 if hops < INT8_MAX else INT8_MAX]),
            (chain.ttl, _SMALL[ttl - 1 if ttl > 0 else 0]),
        )
        if chain.mode is Mode.DEBUG:
            hop = b"%b:%d:%d" % (chain.service_id, self._own_wait_ms, spent_ms)
            written.append((chain.trace, _longer(link.trace, hop)))


def freshness_ms(chain: Chain, link: Link) -> int:
    """Time since the message was due, at least 0. Without a due time it counts from the begin of the chain."""
    since = link.since_ms if link.due_at_ms is None else link.due_at_ms
    return max(0, chain.now_ms() - since) if since is not None else 0


# Cached: at high rates many messages fall into one millisecond, and messages of one chain share its origin.
@lru_cache(maxsize=TIMES_CACHED)
def parse_header_time(data: bytes) -> int | None:
    """Parse a time in RFC 3339 (UTC, three decimals, Z) to ms since the epoch. None for any other text."""
    # fromisoformat accepts weeks, other separators and zones too, so the positions of the separators are checked first.
    if len(data) != _TIME_BYTES or data[4::3][:2] != b"--" or data[10:17:3] != b"T::" or data[19::4] != b".Z":
        return None
    try:
        moment = datetime.fromisoformat(data[:-1].decode("ascii"))
    except ValueError:
        return None
    return (moment - _EPOCH) // _MS


@lru_cache(maxsize=TIMES_CACHED)
def header_time(at_ms: int) -> bytes:
    """Format ms since the epoch as text for `parse_header_time`. Raises ValueError outside the years 1 to 9999."""
    try:
        return b"%bZ" % (_EPOCH + at_ms * _MS).isoformat(timespec="milliseconds").encode()
    except OverflowError as error:
        raise ValueError(f"{at_ms} ms are in no year that headers can say") from error


def _joined(chain: Chain, links: Sequence[Link], now_ms: int) -> tuple[Link, int]:
    """Join several links. Returns the one link, and its wait in this hop."""
    waits = [chain.apart_ms(now_ms, link.created_at_ms) for link in links]
    known = [since for link in links if (since := link.since_ms) is not None]
    oldest = min(links, key=lambda link: INT64_MAX if link.since_ms is None else link.since_ms)
    # The largest sum, because the sum of the largest values could be longer than the chain has existed.
    wait_ms = max(link.wait_ms + own_ms for link, own_ms in zip(links, waits, strict=True))
    own_wait_ms = waits[links.index(oldest)]
    joined = Link(
        origin_ms=min(known, default=None),
        processing_ms=max(link.processing_ms for link in links),
        wait_ms=wait_ms - own_wait_ms,
        hop_count=max(link.hop_count for link in links),
        ttl_hops=min(link.ttl_hops for link in links),
        trace=oldest.trace,
        whole=False,
    )
    return joined, own_wait_ms


def _longer(trace: bytes, hop: bytes) -> bytes:
    longer = b"%b,%b" % (trace, hop) if trace else hop
    while len(longer) > TRACE_BYTES_MAX:
        longer = longer[longer.index(b",") + 1 :]
    return longer
