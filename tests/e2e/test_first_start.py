"""A first start, with no compiled kernel: the log, the probe and a refused client say how far it is."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from support.servers.logs import wait_until
from support.servers.processes import READY_WITHIN_S, UnreadyRole
from tsdb.client import ReadOptions, WriteBatch, connect
from tsdb.model.errors import Unavailable

# A machine that is busy with other tests compiles all kernels in minutes.
pytestmark = pytest.mark.timeout(2 * READY_WITHIN_S)

TEXT = r"compiling kernels, \d+ of \d+"


def batch(ts_ms: int) -> WriteBatch:
    written = WriteBatch()
    written.add({"__name__": "up"}, ts_ms, 1.0)
    return written


def test_a_standalone_that_compiles_says_so_and_a_client_that_waits_is_served(tmp_path: Path) -> None:
    home = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TSDB_LOG_FORMAT": "json"}
    now_ms = time.time_ns() // 1_000_000
    with UnreadyRole(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), env=home) as role:
        wait_until(lambda: (role.ready()[1] or {}).get("reason") == "compiling", READY_WITHIN_S)
        status, shown = role.ready()
        assert status == 503
        assert re.match(TEXT, shown["message"])
        with connect(role.grpc, timeout_s=1.0) as client, pytest.raises(Unavailable, match=TEXT) as refused:
            client.write(batch(now_ms))
        assert refused.value.reason == "compiling"
        with connect(role.grpc, timeout_s=READY_WITHIN_S) as client:
            tokens = client.write(batch(now_ms)).tokens
            assert client.select("up", now_ms, now_ms + 1, options=ReadOptions(after=tokens)).samples == 1
        check_log([json.loads(line) for line in role.log_file.read_text().splitlines() if line.startswith("{")])


def test_a_signal_ends_a_standalone_that_compiles(tmp_path: Path) -> None:
    home = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "TSDB_LOG_FORMAT": "json"}
    with UnreadyRole(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), env=home) as role:
        wait_until(lambda: (role.ready()[1] or {}).get("reason") == "compiling", READY_WITHIN_S)
        assert role.terminate() == 0
        events = [json.loads(line) for line in role.log_file.read_text().splitlines() if line.startswith("{")]
        last = [event for event in events if event["event"] == "compiling kernels"][-1]
        assert last["done"] < last["of"] // 2, "it ended before the other kernels were compiled"


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
