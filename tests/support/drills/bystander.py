"""Bystander: a client that does no harm and must not be harmed. It writes, reads and probes while others attack.

Figures are taken twice, quiet and under attack. The quiet ones are taken beside a process that keeps one core busy,
since an attacker on this machine costs the servers that much CPU whatever it does; or, where there is a control, from
an untouched server at the time of the attack, which other load on the machine slows as much.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psutil

from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import ReadOptions, WriteBatch, WriteResult, connect

TIMES_QUIET_MAX = 5.0
SECONDS_MAX = 1.0
# A p99 below this is scheduling noise: servers, attackers and this client share two cores.
NOISE_S = 0.05
# Other load on the machine makes a round slower, and never faster, so harm must show in every round of this time.
ROUNDS_S = 40.0
REST_S = 0.02  # Pause between two calls of one kind.
TIMEOUT_S = 20.0
SERIES = 20
JOB = "bystander"
MINUTE_MS = 60_000
RSS_EVERY_S = 0.05


@dataclass(slots=True)
class Figures:
    """Seconds of each call, by kind (write, read, probe), and what failed."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"write": [], "read": [], "probe": []})
    failures: list[str] = field(default_factory=list)

    def p99(self, kind: str) -> float:
        """The 99th percentile, in seconds. With fewer than a hundred calls it is the slowest one."""
        ordered = sorted(self.seconds[kind])
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def __str__(self) -> str:
        parts = [f"{kind} p99 {self.p99(kind) * 1e3:.1f} ms of {len(all_)}" for kind, all_ in self.seconds.items()]
        return ", ".join(parts) + (f", {len(self.failures)} failed: {self.failures[:3]}" if self.failures else "")


class Bystander:
    """Threads that write, read and probe all the time. A context manager.

    gateway: written to. reader: read from. probed: every role whose `/-/ready` and `/-/healthy` must answer 200.
    token: bearer token of its calls. alone: other partitions are allowed to be not ready: it reads only those of its
    samples, and `/-/ready` is not probed. instance: a label of its samples, which chooses their partition.
    """

    def __init__(
        self,
        gateway: Role,
        reader: Role,
        probed: Sequence[Role],
        *,
        token: str | None = None,
        alone: bool = False,
        instance: str = "b",
    ) -> None:
        self._gateway = connect(gateway.grpc, token=token, timeout_s=TIMEOUT_S)
        self._reader = connect(reader.grpc, token=token, timeout_s=TIMEOUT_S)
        paths = ("healthy",) if alone else ("ready", "healthy")
        self._probes = [f"http://{role.http}/-/{path}" for role in probed for path in paths]
        self._alone = alone
        self._source = {"job": JOB, "instance": instance}
        self._name = f"bystander_{uuid.uuid4().hex[:8]}"
        self._written = 0
        self._newest: WriteResult | None = None
        self._base_ms = time.time_ns() // 1_000_000
        self._figures = Figures()
        self._stopping = threading.Event()
        calls: dict[str, Callable[[], None]] = {"write": self._write, "read": self._read, "probe": self._probe}
        self._threads = [threading.Thread(target=self._repeat, args=call, daemon=True) for call in calls.items()]

    @property
    def partitions(self) -> list[int]:
        """The partitions of its samples."""
        assert self._newest is not None
        return [token.partition for token in self._newest.tokens]

    def __enter__(self) -> Self:
        self._write()
        self._read(self._newest)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S + SECONDS_MAX)
        self._gateway.close()
        self._reader.close()

    def quiet(self, *, calls: int = 100) -> Figures:
        """Figures of `calls` calls of each kind without an attack, beside one busy core."""
        with _busy_core():
            return self._take(calls)

    def attacked(self, quiet: Figures, *, calls: int = 100) -> Figures:
        """Figures of `calls` calls of each kind, taken while others attack: of the first round within the bounds, or of
        the last one that begins within ROUNDS_S. A call that fails ends the rounds."""
        give_up_at = time.monotonic() + ROUNDS_S
        while True:
            figures = self._take(calls)
            if figures.failures or not too_slow(quiet, figures) or time.monotonic() > give_up_at:
                return figures
            print(f"a round over its bounds: {figures}")

    def beside(self, control: Bystander, *, calls: int = 100) -> tuple[Figures, Figures]:
        """(figures of `control`, own figures): `calls` calls of each kind, taken at the same time while others attack
        the servers of this one alone. Of the first round within the bounds, or as `attacked`."""
        give_up_at = time.monotonic() + ROUNDS_S
        while True:
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(control._take, calls)
                figures, untouched = self._take(calls), other.result()
            assert not untouched.failures, f"calls of the untouched servers failed: {untouched}"
            if figures.failures or not too_slow(untouched, figures) or time.monotonic() > give_up_at:
                return untouched, figures
            print(f"a round over its bounds: {figures}; untouched: {untouched}")

    def quiet_again(self, quiet: Figures, attacked: Figures, *, calls: int = 100) -> Figures:
        """The figures to compare with, after the attack: `quiet`, or where the attacked ones are over its bounds, the
        slower of `quiet` and of figures taken now. Other load on the machine may have come since."""
        if not too_slow(quiet, attacked):
            return quiet
        print(f"quiet before the attack: {quiet}")
        now = self.quiet(calls=calls)
        slower = {kind: (quiet if quiet.p99(kind) > now.p99(kind) else now).seconds[kind] for kind in quiet.seconds}
        return Figures(slower, quiet.failures + now.failures)

    def _take(self, calls: int) -> Figures:
        self._figures = taken = Figures()
        wait_until(lambda: min(map(len, taken.seconds.values())) >= calls or len(taken.failures) >= calls, 120.0)
        # The calls go on while attackers end: their times are not of this round, their failures count.
        return Figures({kind: list(seconds) for kind, seconds in taken.seconds.items()}, taken.failures)

    def check_all_is_read_back(self) -> int:
        """Every sample acknowledged is answered; returns how many there are."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S + SECONDS_MAX)
        assert self._newest is not None
        options = self._options(self._newest)
        answer = self._reader.select(
            self._name, self._base_ms, self._base_ms + self._written, options=options, timeout_s=60.0
        )
        assert answer.samples == self._written * SERIES, f"{answer.samples} of {self._written * SERIES} samples read"
        return answer.samples

    def _repeat(self, kind: str, call: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            figures, begin = self._figures, time.monotonic()
            try:
                call()
            except Exception as error:
                figures.failures.append(f"{kind}: {type(error).__name__}: {error}")
            figures.seconds[kind].append(time.monotonic() - begin)
            self._stopping.wait(REST_S)

    def _write(self) -> None:
        batch = WriteBatch()
        for number in range(SERIES):
            labels = {"__name__": self._name, **self._source, "number": str(number)}
            batch.add(labels, self._base_ms + self._written, float(self._written))
        self._newest = self._gateway.write(batch)
        self._written += 1

    def _read(self, after: WriteResult | None = None) -> None:
        span = self._base_ms, self._base_ms + MINUTE_MS
        answer = self._reader.select(self._name, *span, options=self._options(after))
        assert len(answer) == SERIES, f"{len(answer)} of {SERIES} series answered"

    def _options(self, after: WriteResult | None) -> ReadOptions:
        return ReadOptions(after=after.tokens if after else (), partitions=self.partitions if self._alone else ())

    def _probe(self) -> None:
        for url in self._probes:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                assert answer.status == 200


def check_unharmed(quiet: Figures, attacked: Figures) -> None:
    """Nothing failed, and p99 is within the bounds of `too_slow`."""
    print(f"quiet:    {quiet}\nattacked: {attacked}")
    assert not attacked.failures, attacked
    assert not too_slow(quiet, attacked)


def too_slow(quiet: Figures, attacked: Figures) -> list[str]:
    """Each kind of call whose p99 under attack is over its bound, with both figures: five times the quiet one and at
    most a second, probes included. The second does not hold where other load makes quiet calls that slow."""
    bounds_s = {
        kind: min(max(SECONDS_MAX, quiet.p99(kind)), TIMES_QUIET_MAX * max(quiet.p99(kind), NOISE_S))
        for kind in quiet.seconds
    }
    return [
        f"{kind}: {attacked.p99(kind):.3f} s; bound is {bound_s:.3f} s"
        for kind, bound_s in bounds_s.items()
        if attacked.p99(kind) > bound_s
    ]


class RssPeak:
    """The largest resident size of a process while it is watched, bytes. A context manager."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.before_bytes = self._process.memory_info().rss
        self.peak_bytes = self.before_bytes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    @property
    def grown_bytes(self) -> int:
        """How far it went above the size at the beginning."""
        return self.peak_bytes - self.before_bytes

    def _watch(self) -> None:
        while not self._stopping.wait(RSS_EVERY_S):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_burn, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
        process.close()


def _burn() -> None:
    while True:
        sum(range(100_000))
