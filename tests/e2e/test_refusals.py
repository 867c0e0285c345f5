"""Every mistake is refused with an exit code and an error that names its cause, and no process fails.

All through the command line and the ports: settings that do not fit, a wrong token, TLS, a full disk, a range before
coverage, and random bytes. After each the process still takes a write and answers a read. Bad words, files and messages
are the rows of test_bad_inputs.py.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.data.fuzz import payloads, send
from support.servers.certificates import Authority
from support.servers.deployments import Deployment, embedded
from support.servers.logs import LogFactory
from support.servers.probes import healthy, write_once
from support.servers.processes import Role, run_tsdb, tsdb_ok
from tsdb.client import ReadOptions, Unavailable, WriteBatch, WriteResult
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS
from tsdb.model.clock import ManualClock

FUZZ_PAYLOADS = 30
FULL_SLACK_BYTES = 300_000
WITHIN_S = 60.0
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with embedded(tmp_path_factory.mktemp("refusals")) as running:
        yield running


@pytest.fixture(autouse=True)
def serves_after(deployment: Deployment) -> Iterator[None]:
    yield
    assert read_back(deployment, write(deployment))
    assert healthy(deployment.store)


def write(deployment: Deployment) -> WriteResult:
    batch = WriteBatch()
    batch.add({"__name__": "after", "job": "refusals"}, time.time_ns() // 1_000_000, 1.5)
    with deployment.writer() as client:
        return client.write(batch)


def read_back(deployment: Deployment, written: WriteResult) -> bool:
    """Whether a read returns the sample that `write` wrote to the series `after`."""
    now_ms = time.time_ns() // 1_000_000
    with deployment.reader() as client:
        options = ReadOptions(after=written.tokens)
        return client.select("after", now_ms - HOUR_MS, now_ms + 1, options=options).samples > 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--no-such-flag", "1"), 2, "--no-such-flag"),
        (("--shard", "7/3"), 2, "index from 0 to below the count"),
        (("--log", "ftp://x"), 2, "is neither kafka://"),
        (("--placement-labels", "host"), 1, "placement_labels"),
        (("--time-set", "demo"), 1, "time_set"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_role_with_settings_that_do_not_fit_ends_and_says_which(
    deployment: Deployment, arguments: tuple[str, ...], code: int, told: str
) -> None:
    data_dir = deployment.store.arguments[deployment.store.arguments.index("--data-dir") + 1]
    done = run_tsdb("standalone", "--data-dir", data_dir, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments)
    assert done.returncode == code, done
    assert told in (done.stderr + done.stdout).decode()


def test_fuzzed_bytes_on_both_ports_change_nothing(deployment: Deployment) -> None:
    for address in (deployment.store.grpc, deployment.store.http):
        for payload in payloads(seed=41, count=FUZZ_PAYLOADS):
            send(int(address.rpartition(":")[2]), payload)
    assert deployment.store.ready()[0] == 200


def test_a_full_disk_refuses_writes_answers_reads_and_passes(deployment: Deployment) -> None:
    before = write(deployment)
    process = psutil.Process(deployment.gateway.process.pid)
    data_dir = Path(deployment.store.arguments[deployment.store.arguments.index("--data-dir") + 1])
    full = max(file.stat().st_size for file in data_dir.iterdir()) + FULL_SLACK_BYTES
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (full, hard))  # Limit of a file's size: larger writes fail as on a full disk.
    try:
        told_ok, refusal = fill(deployment)
        assert refusal.reason in ("disk_full", "disk_error")
        assert refusal.retry_after_s
        assert read_back(deployment, before)
        status, told = deployment.store.ready()
        assert (status, told["reason"]) == (503, refusal.reason)
        assert str(data_dir) in told["message"]
        assert "bytes are free" in told["message"]
        assert healthy(deployment.gateway)
        for _ in range(50):
            assert write_once(deployment.gateway, 5.0).error is not None
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    deployment.store.wait_ready(WITHIN_S)  # No write is made, because a gateway that is not ready receives none.
    lines = deployment.store.log_file.read_text().splitlines()
    assert sum("writes refused" in line and "log-writer" in line for line in lines) <= 2
    assert write_once(deployment.gateway, 30.0).error is None
    deployment.store.kill()
    deployment.store.start()
    with deployment.reader() as client:
        held = client.select("filling", 0, time.time_ns() // 1_000_000 + 1)
    assert set(told_ok) <= set(held.ts_ms.tolist())
    print(f"disk full after {len(told_ok)} samples told OK: all are read back; refused as {refusal.reason}")


def fill(deployment: Deployment) -> tuple[list[int], Unavailable]:
    """Write until refused. Returns the acknowledged timestamps and the refusal."""
    told_ok: list[int] = []
    first_ms = time.time_ns() // 1_000_000 - HOUR_MS
    with deployment.writer() as client:
        give_up_at = time.monotonic() + WITHIN_S
        while time.monotonic() < give_up_at:
            times = list(range(first_ms + len(told_ok), first_ms + len(told_ok) + 2_000))
            batch = WriteBatch()
            batch.add({"__name__": "filling", "job": "refusals"}, times, [float(ts_ms % 97) for ts_ms in times])
            try:
                client.write(batch, timeout_s=2.0)
            except Unavailable as error:
                return told_ok, error
            told_ok += times
    raise AssertionError(f"{len(told_ok)} samples accepted within {WITHIN_S:g} s, the disk never full")


def test_a_range_before_coverage_is_refused_with_what_is_held(tmp_path: Path) -> None:
    """The log reaches further back than a store's memory: older times are history's, never a silently short answer."""
    url, now_ms = f"sqlite:///{tmp_path}/log.sqlite", time.time_ns() // 1_000_000
    tsdb_ok("topics", "create", "--log", url, "--partitions", "1", "--replication", "1")
    with LogFactory(url, "") as logs:
        log = logs.open(clock=ManualClock(now_ms - 20 * HOUR_MS))
        log.append_sync(METRICS, 0, encode_tick())
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path)) as role:
        assert write_once(role, 10.0).error is None
    with Role(tmp_path, "store", "--log", url) as store:
        span = ("--start", str(now_ms - 12 * HOUR_MS), "--end", str(now_ms))
        done = run_tsdb("query", "--raw", "one_try", "--address", store.grpc, *span)
        assert done.returncode == 1
        assert "is complete from" in done.stderr.decode()
        assert str(now_ms - 12 * HOUR_MS) in done.stderr.decode()
        assert run_tsdb("query", "--raw", "one_try", "--address", store.grpc, "--last", "1h").returncode == 0


def test_only_the_right_token_over_tls_gets_in(tmp_path: Path) -> None:
    ours, other = Authority.in_folder(tmp_path / "ours"), Authority.in_folder(tmp_path / "other")
    cert_file, key_file = ours.issue("server")
    right, wrong = tmp_path / "token", tmp_path / "wrong"
    right.write_text("right-token\n")
    wrong.write_text("wrong-token\n")
    secured = ("--tls-cert-file", str(cert_file), "--tls-key-file", str(key_file), "--token-file", str(right))
    role = Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), *secured)
    try:
        role.start(ready=False)
        call = ("coverage", "--address", role.grpc)
        trusted = ("--tls-ca", str(ours.ca_file))
        tsdb_ok(*call, *trusted, "--token-file", str(right), "--timeout", "120s")
        for flags, told in [
            ((*trusted, "--token-file", str(wrong)), "token_wrong"),
            (trusted, "token_missing"),
            (("--tls-ca", str(other.ca_file), "--token-file", str(right)), "is not trusted"),
            (("--token-file", str(right), "--timeout", "2s"), "it may require TLS"),
        ]:
            done = run_tsdb(*call, *flags)
            assert done.returncode == 1, (flags, done)
            assert told in done.stderr.decode(), (flags, done.stderr)
            assert b"right-token" not in done.stderr
        assert "right-token" not in role.log_file.read_text()
    finally:
        role.kill()
