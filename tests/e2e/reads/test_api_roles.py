"""Attacks the Prometheus API of a querier process: its only store is killed and comes back.

Every answer is whole, or an error in Prometheus's envelope with our reason.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from support.servers.deployments import create_topics
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json
from support.shared_servers import SharedBroker

SERIES = 40
WITHIN_S = 60.0
TOKEN = "a-token-for-tests"

pytestmark = pytest.mark.timeout(600)  # Four starts of a process, each with its kernels to load on a busy machine.


def ask(role: Role, path: str, token: str = TOKEN, **parameters: Any) -> tuple[int, Any]:
    """Status and JSON of a request below /api/v1/."""
    request = urllib.request.Request(f"http://{role.http}/api/v1/{path}?{urlencode(parameters)}")
    request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_querier_answers_whole_or_refuses(tmp_path: Path, kafka: SharedBroker) -> None:
    log = create_topics(kafka.bootstrap)
    gateway, store = Role(tmp_path, "gateway", *log), Role(tmp_path, "store", *log)
    querier = Role(tmp_path, "querier", *log, "--stores", store.grpc, env={"TSDB_TOKEN": TOKEN})
    with ExitStack() as stack:
        for role in (gateway, store, querier):
            stack.push(role)
            role.start(ready=False)
        for role in (gateway, store, querier):
            role.wait_ready()
        now_s = _write(tmp_path, gateway)
        wait_until(lambda: _count(querier, now_s) == SERIES, WITHIN_S)
        assert ask(querier, "query", "another", query="1")[0] == 401
        whole = _steps(querier, now_s)
        assert len(whole["data"]["result"]) == SERIES

        store.kill()
        wait_until(lambda: ask(querier, "query", query="m", time=now_s)[0] == 503, WITHIN_S)
        status, refused = ask(querier, "labels")
        assert (status, refused["status"], refused["errorType"]) == (503, "error", "unavailable")
        assert "(reason: " in refused["error"]

        store.start()
        wait_until(lambda: _count(querier, now_s) == SERIES, WITHIN_S)
        # A store that has just begun may still be behind by more than a second, and says so.
        again = _steps(querier, now_s)
        assert all("is behind the log" in warning for warning in again.pop("warnings", []))
        whole.pop("warnings", None)
        assert again == whole
        assert querier.terminate() == 0


def _write(scratch: Path, gateway: Role) -> float:
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "labels": {"__name__": "m", "job": "j", "instance": f"i{number}"},
            "ts_ms": now_ms - 1000 * ago,
            "value": ago / 8,
        }
        for number in range(SERIES)
        for ago in range(50)
    ]
    file = scratch / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert tsdb_json("write", str(file), "--address", gateway.grpc)["samples"] == len(rows)
    return now_ms / 1000


def _count(querier: Role, at_s: float) -> int:
    status, answer = ask(querier, "query", query="count(m)", time=at_s)
    result = answer["data"]["result"] if status == 200 else []
    return int(result[0]["value"][1]) if result else 0


def _steps(querier: Role, now_s: float) -> Any:
    status, answer = ask(querier, "query_range", query="m * 2", start=now_s - 45, end=now_s, step=5)
    assert status == 200, answer
    return answer
