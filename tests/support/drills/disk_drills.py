"""Drills of a full disk: a loader whose history cannot grow, and one process whose whole disk is full."""

from __future__ import annotations

import contextlib
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import psutil

from support.data.chunk_topics import append_entries, staged
from support.drills.bystander import Figures, RssPeak, check_unharmed
from support.servers.histories import HistoryFactory
from support.servers.loaders import assert_holds, is_loaded
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, ReadOptions, Unavailable, WriteBatch, WriteResult, connect
from tsdb.log.interface import METRICS, Log

REASONS = ("disk_full", "disk_error")
PARTITIONS = 3  # As the shared settings of the histories of tests have it.
PAGE_BYTES = 4096
HISTORY_PAGE_BYTES = 16_384
NAME = "filling"
BATCH = 2_000
BASE_MS = time.time_ns() // 1_000_000 - 3_600_000
ANSWER_WITHIN_S = 1.0
PROBES_MIN = 20
DRAIN_S = 25.0
LINES_MAX = 6  # Log lines: one a minute for each cause. Without a bound there were nine a second.
WATCHED_S = 3.0
READS = 100
MIB = 1 << 20
GROWN_BYTES = 256 * MIB  # The samples that fit on the disk, and refused writes.

Full = Callable[[Role], AbstractContextManager[None]]


class SmallDisk:
    """A tmpfs with the files of a folder, mounted over it for one process alone. Needs Linux with mount namespaces.

    born_full: nothing more fits when the process starts, until the first `full` ends.
    """

    def __init__(self, folder: Path, size_bytes: int, *, born_full: bool = False) -> None:
        self._folder = folder
        mount = f'cp -a "$0" "$0.files" && mount -t tmpfs -o size={size_bytes} tmpfs "$0" && cp -a "$0.files/." "$0"'
        if born_full:
            mount = f'{mount} && {{ head -c {size_bytes} /dev/zero > "$0/ballast" || true; }}'
        self.wrapper = ("unshare", "--mount", "--map-root-user", "sh", "-c", f'{mount} && exec "$@"', str(folder))

    @contextlib.contextmanager
    def full(self, role: Role) -> Iterator[None]:
        """Fill the disk to the last byte; free it at the end of the context."""
        ballast = seen_by(role, self._folder) / "ballast"
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(PAGE_BYTES))
        try:
            yield
        finally:
            ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def files_cannot_grow(role: Role) -> Iterator[None]:
    """No file of the process grows past a page of history, as on a full disk, until the context ends."""
    process = psutil.Process(role.process.pid)
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (HISTORY_PAGE_BYTES, hard))
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))


def seen_by(role: Role, path: Path) -> Path:
    """The path as the process sees it, with the file systems that only it has."""
    return Path(f"/proc/{role.process.pid}/root{path}")


def history_is_full(loader: Role, log: Log, folder: Path, full: Full, *, windows: int) -> None:
    """A loader with a full disk of history reports it, loses nothing, and continues by itself once the disk
    has space.
    """
    topic_id = log.topic_id(METRICS)
    entries, expected = staged(topic_id, PARTITIONS, 1, 50, 1)
    append_entries(log, entries)
    wait_until(lambda: is_loaded(log), 120.0)
    with full(loader):
        entries, more = staged(topic_id, PARTITIONS, windows, 50, 2, first_window=1)
        append_entries(log, entries)
        check_says_why(loader, folder / "history.db")
        assert not is_loaded(log)
    wait_until(lambda: is_loaded(log), 120.0)
    loader.wait_ready()
    # A copy, because SQLite follows the link out of the process's mount namespace.
    copy = shutil.copytree(seen_by(loader, folder), folder.with_name("copy"), ignore=lambda *_: {"history.db-shm"})
    with HistoryFactory(f"sqlite:///{copy}/history.db") as factory:
        assert_holds(factory.open(), log, expected.later(more))
    with full(loader):
        append_entries(log, staged(topic_id, PARTITIONS, windows, 50, 3, first_window=windows + 1)[0])
        loader.terminate_within(DRAIN_S)


def log_is_full(role: Role, folder: Path, full: Full) -> None:
    """One process whose disk is full refuses writes by name, answers reads and probes, and goes on by itself."""
    with connect(role.grpc, timeout_s=60.0) as client:
        first = write(client, 0)
        accepted = first.samples
        quiet = first_reads(client, first)
        with full(role), RssPeak(role.process.pid) as rss:
            accepted += fill(client, accepted)
            check_says_why(role, folder)
            answer = client.select(NAME, 0, 1 << 50, options=ReadOptions(allow_stale=True))
            assert answer.samples == accepted
            check_unharmed(quiet, first_reads(client, first))
            assert rss.grown_bytes <= GROWN_BYTES, f"RSS +{rss.grown_bytes / MIB:.0f} MiB"
        role.wait_ready()
        last = write(client, accepted)
        accepted += last.samples
        assert client.select(NAME, 0, 1 << 50, options=ReadOptions(after=last.tokens)).samples == accepted
    with full(role):
        role.terminate_within(DRAIN_S)
    print(f"disk full after {accepted} samples")


def first_reads(client: Client, first: WriteResult) -> Figures:
    """Seconds of reads of the first batch."""
    figures = Figures({"read": []})
    options = ReadOptions(allow_stale=True, after=first.tokens)
    for _ in range(READS):
        began = time.monotonic()
        answer = client.select(NAME, BASE_MS, BASE_MS + BATCH, options=options)
        figures.seconds["read"].append(time.monotonic() - began)
        assert answer.samples == BATCH
    return figures


def write(client: Client, first: int) -> WriteResult:
    """Write the batch of BATCH samples whose first is at BASE_MS + first."""
    batch = WriteBatch()
    times = np.arange(BASE_MS + first, BASE_MS + first + BATCH)
    batch.add({"__name__": NAME, "job": "disk"}, times, np.random.default_rng(first).random(BATCH))
    return client.write(batch, timeout_s=5.0)


def fill(client: Client, first: int) -> int:
    """Write until the disk is full. Returns the number of accepted samples."""
    accepted = 0
    while True:
        try:
            accepted += write(client, first + accepted).samples
        except Unavailable as error:
            if error.reason in REASONS:
                return accepted
            raise


def check_says_why(role: Role, path: Path) -> None:
    """/-/ready names the path, probes answer at once, and the log of the process stays readable."""
    wait_until(lambda: (role.ready()[1] or {}).get("reason") in REASONS, 60.0)
    print((role.ready()[1] or {}).get("message"))
    lines_before, until = role.lines_logged(), time.monotonic() + WATCHED_S
    took_s: list[float] = []
    while time.monotonic() < until or len(took_s) < PROBES_MIN:
        began = time.monotonic()
        status, body = role.ready()
        took_s.append(time.monotonic() - began)
        # Some writes still fit on a real disk, because SQLite reuses the space of its write-ahead log.
        assert status == 200 or str(path) in body["message"], body
    assert role.lines_logged() - lines_before <= LINES_MAX
    assert statistics.median(took_s) <= ANSWER_WITHIN_S  # A paused machine delays some of the requests.
