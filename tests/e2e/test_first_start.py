"""A first start, with no compiled kernel: the log, the probe and a refused client say how far it is."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from support.servers.logs import wait_until
from support.servers.processes import READY_WITHIN_S, Role, UnreadyRole, tsdb_ok
from tsdb.client import WriteBatch, connect
from tsdb.model.errors import Unavailable

# A machine that is busy with other tests compiles the kernels in minutes.
pytestmark = pytest.mark.timeout(2 * READY_WITHIN_S)

MINUTE_MS = 60_000
TEXT = r"compiling kernels, \d+ of \d+"


@pytest.fixture
def log(tmp_path: Path) -> tuple[str, str]:
    """The flag of a log with one accepted sample of now."""
    log = "--log", f"sqlite:///{tmp_path}/log.db"
    tsdb_ok("topics", "create", *log, "--partitions", "2")
    batch = WriteBatch()
    batch.add({"__name__": "up"}, time.time_ns() // 1_000_000, 1.0)
    with Role(tmp_path, "gateway", *log) as gateway, connect(gateway.grpc) as client:
        client.write(batch)
    return log


def test_a_store_that_compiles_says_so_and_a_client_that_waits_is_served(tmp_path: Path, log: tuple[str, str]) -> None:
    end_ms = time.time_ns() // 1_000_000 + 1
    with UnreadyRole(tmp_path, "store", *log, env=empty_cache(tmp_path)) as role:
        wait_until(lambda: (role.ready()[1] or {}).get("reason") == "compiling", READY_WITHIN_S)
        status, shown = role.ready()
        assert status == 503
        assert re.match(TEXT, shown["message"])
        with connect(role.grpc, timeout_s=1.0) as client, pytest.raises(Unavailable, match=TEXT) as refused:
            client.select("up", end_ms - MINUTE_MS, end_ms)
        assert refused.value.reason == "compiling"
        with connect(role.grpc, timeout_s=READY_WITHIN_S) as client:
            assert client.select("up", end_ms - MINUTE_MS, end_ms).samples == 1
        check_log(events_of(role))


def test_a_signal_ends_a_standalone_that_compiles(tmp_path: Path) -> None:
    data = "--data-dir", str(tmp_path / "data")
    with UnreadyRole(tmp_path, "standalone", *data, env=empty_cache(tmp_path)) as role:
        wait_until(lambda: (role.ready()[1] or {}).get("reason") == "compiling", READY_WITHIN_S)
        assert role.terminate() == 0
        last = [event for event in events_of(role) if event["event"] == "compiling kernels"][-1]
        assert int(str(last["done"])) < int(str(last["of"])) // 2, "it ended before the other kernels were compiled"


def empty_cache(scratch: Path) -> dict[str, str]:
    """The environment of a first start, with a log of JSON lines."""
    return {"NUMBA_CACHE_DIR": str(scratch / "cache"), "TSDB_LOG_FORMAT": "json"}


def events_of(role: Role) -> list[dict[str, object]]:
    return [json.loads(line) for line in role.log_file.read_text().splitlines() if line.startswith("{")]


def check_log(events: list[dict[str, object]]) -> None:
    """Progress from the first kernel on, a few lines of it, and none of a replay before its end."""
    names = [str(event["event"]) for event in events]
    assert not [name for name in names if "replica" in name], "an embedded log has no brokers to lose"
    progress = [event for event in events if event["event"] == "compiling kernels"]
    assert progress[0]["done"] == 0
    assert len(progress) > 1, "one kernel took the whole time?"
    assert all("seconds_left" in event for event in progress[1:])
    assert [event["done"] for event in progress] == sorted(event["done"] for event in progress)  # type: ignore[type-var]
    last = len(names) - 1 - names[::-1].index("compiling kernels")
    assert not [name for name in names[:last] if "replay" in name]
