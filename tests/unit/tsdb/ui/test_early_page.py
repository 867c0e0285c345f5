"""While a role with pages starts, its page shows the reason; a role without pages has none."""

from __future__ import annotations

import http.client
import threading
from contextlib import closing

import pytest

from support.servers.logs import wait_until
from tsdb.api.prometheus.api import PrometheusApi
from tsdb.api.prometheus.call import ApiOptions, ApiSources, Families
from tsdb.model.clock import ManualClock
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.health import Liveness
from tsdb.ops.http.bodies import BodyRoutes, NoBodyRoutes
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.lifecycle import Component
from tsdb.roles.process import Opened, RoleProcess
from tsdb.ui.routes import UiRoutes
from tsdb.ui.sources import UiOptions, UiSources
from tsdb.v1 import reader_pb2


def pages() -> UiRoutes:
    """Routes that answer nothing: their API is not started."""
    api_sources = ApiSources(
        open_storage=lambda _caller, _options: pytest.fail("no read is expected"),
        families=lambda: Families({}),
        cardinality=lambda _caller, _by, _top: reader_pb2.CardinalityResponse(),
        settings=dict,
        clock=ManualClock(0),
    )
    api = PrometheusApi(api_sources, ApiOptions(), RequestBytes(1 << 20))
    sources = UiSources(lambda: (), lambda _caller: reader_pb2.CoverageResponse(), False, 0, "standalone", tuple)
    return UiRoutes(api, sources, UiOptions(), RequestBytes(1 << 20))


def get(server: OpsServer, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize("has_pages", [True, False])
def test_the_page_waits_while_a_component_starts(has_pages: bool) -> None:
    begun, may_go = threading.Event(), threading.Event()
    routes: BodyRoutes = pages() if has_pages else NoBodyRoutes()

    class SlowComponent(Component):
        def start(self) -> None:
            begun.set()
            may_go.wait(60.0)

    process = RoleProcess(lambda: Opened([SlowComponent()], dict, lambda: "", bodies=routes))
    tokens = Tokens(text="good")
    with serve_ops("127.0.0.1", 0, process.readiness, Liveness, bodies=process, tokens=tokens) as server:
        process.start()
        assert begun.wait(60.0)
        status, text = get(server, "/")
        assert (status, "the role is starting" in text) == ((503, True) if has_pages else (401, False))
        assert ('http-equiv="refresh"' in text) is has_pages
        assert get(server, "/ui/graph")[0] == 401
        may_go.set()
        wait_until(lambda: process.readiness().ready)
        status, text = get(server, "/")
        assert (status, 'id="sign-in"' in text) == (401, has_pages)
        process.close()
        assert process.join(60.0)
