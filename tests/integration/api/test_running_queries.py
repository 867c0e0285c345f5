"""A slow query of a standalone process is listed while it runs, over both servers, and a cancel ends it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb, tsdb_json
from tsdb.client import Unavailable, WriteBatch, connect

# 2,700 vectors of 20 series and 100,000 steps take minutes, in parts of some 10 ms. The limit of samples allows them.
SERIES, STEPS = 20, 100_000
GROUP = "(" + " + ".join(["sin(slow)"] * 90) + ")"
SLOW = f"max_over_time(({' + '.join([GROUP] * 30)})[{STEPS}s:1s])"
EVERY_S = 200
WITHIN_S = 30.0  # A canceled query ends within this time, far below the time of the whole query.
CLIENT_S = 300.0

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    scratch = tmp_path_factory.mktemp("running-queries")
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data")) as running:
        with connect(running.grpc, timeout_s=CLIENT_S) as client:
            batch, now_ms = WriteBatch(), time.time_ns() // 1_000_000
            for number in range(SERIES):
                for ago_s in range(0, STEPS, EVERY_S):
                    batch.add({"__name__": "slow", "n": str(number)}, now_ms - 1000 * ago_s, 1.0)
            client.write(batch)
            wait_until(lambda: len(client.query("count(slow)")) == 1, WITHIN_S)
        yield running


def over_grpc(role: Role) -> str:
    """The reason of the error that the query ends with."""
    with connect(role.grpc, timeout_s=CLIENT_S) as client, pytest.raises(Unavailable) as ended:
        client.query(SLOW)
    return ended.value.reason


def over_http(role: Role) -> str:
    """The errorType of the answer."""
    url = f"http://{role.http}/api/v1/query"
    body = urllib.parse.urlencode({"query": SLOW}).encode()
    with pytest.raises(urllib.error.HTTPError) as ended:
        urllib.request.urlopen(url, body, timeout=CLIENT_S)
    with ended.value as answer:
        return str(json.loads(answer.read())["errorType"])


def listed(role: Role) -> list[dict[str, Any]]:
    """The running queries whose text is known."""
    return [query for query in tsdb_json("queries", "--address", role.grpc)["queries"] if query["text"]]


@pytest.mark.parametrize(
    ("ask", "kind", "reason"), [(over_grpc, "grpc_query", "cancelled"), (over_http, "query", "canceled")]
)
def test_a_slow_query_is_listed_and_cancelled(role: Role, ask: Callable[[Role], str], kind: str, reason: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, role)
        wait_until(lambda: asked.done() or listed(role) != [], WITHIN_S)
        (query,) = listed(role)
        assert (query["kind"], query["text"]) == (kind, SLOW[:2000])
        assert query["peer"].startswith("127.0.0.1:")
        done = run_tsdb("queries", "--cancel", str(query["number"]), "--address", role.grpc)
        assert (done.returncode, done.stdout) == (0, b"")
        assert asked.result(WITHIN_S) == reason
    assert listed(role) == []
    again = run_tsdb("queries", "--cancel", str(query["number"]), "--address", role.grpc)
    assert again.returncode == 1
    assert b"no_such_query" in again.stderr
