"""Builds a canary from its settings. It has neither log nor history: it calls a gateway and a querier as users do."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from tsdb.canary.checking import Checker
from tsdb.canary.layout import Layout
from tsdb.canary.ledger import Ledger
from tsdb.canary.paths import Paths
from tsdb.canary.rights import require
from tsdb.canary.writing import Writer
from tsdb.client import Client, ClientTls, connect
from tsdb.config import CanarySettings
from tsdb.model.clock import SystemClock
from tsdb.ops.lifecycle import Component
from tsdb.roles.caller_token import caller_token
from tsdb.roles.process import Opened

TIMEOUT_S = 10.0  # Time of one call, retries included, so that a rolling restart of a replica is no failure.
START_TIMEOUT_S = 3.0  # After this time readiness shows the reason, and the start is tried again.
SETTLE_MS = 1_000  # The freshness objective.
STALL_S = 300.0  # Time beyond the interval of a thread: several calls, each of which ends within TIMEOUT_S.


class ClientsComponent(Component):
    """Closes the clients after all components that use them."""

    def __init__(self, *clients: Client) -> None:
        self._clients = clients

    def join(self, timeout_s: float) -> bool:
        self.abort()
        return True

    def abort(self) -> None:
        for client in self._clients:
            client.close()


def open_canary(settings: CanarySettings) -> Opened:
    """A canary process. Raises Unavailable while gateway or querier does not answer, ConfigMismatch (canary_read,
    canary_write, token_file) when it may not read or write."""
    clock = SystemClock()
    layout = Layout(settings.canary_name, round(settings.canary_period_s * 1000), settings.canary_series)
    ledger = Ledger(layout.period_ms)
    with ExitStack() as stack:
        gateway = stack.enter_context(_client(settings, "write", settings.gateway))
        querier = stack.enter_context(_client(settings, "read", settings.querier))
        writer = Writer(gateway, querier, layout, ledger, clock)
        now_ms = clock.now_ms()
        # Read first, because a canary without the right to read must write nothing.
        read_hint = "give a querier, and with read_token_file a token that may read"
        require(
            "read",
            f"querier {settings.querier}",
            read_hint,
            partial(querier.query, layout.selector, now_ms, timeout_s=START_TIMEOUT_S),
        )
        write_hint = "give a gateway, and with write_token_file a token that may write"
        require("write", f"gateway {settings.gateway}", write_hint, partial(writer.write, layout.tick_ms(now_ms)))
        stack.pop_all()
    paths = Paths(querier, layout, ledger, depth_ms=round(settings.canary_history_s * 1000), settle_ms=SETTLE_MS)
    checker = Checker(paths, ledger, clock, settings.canary_check_s)

    def stalled() -> str:
        for thread, every_s in ((writer, settings.canary_period_s), (checker, settings.canary_check_s)):
            still_s = clock.monotonic() - thread.turn_at
            if still_s > every_s + STALL_S:
                return f"{type(thread).__name__} has done nothing for {still_s:.0f} s"
        return ""

    components: list[Component] = [ClientsComponent(gateway, querier), writer, checker]
    return Opened(components, dict, stalled)


def _client(settings: CanarySettings, side: str, address: str) -> Client:
    tls = None
    if settings.target_tls:
        tls = ClientTls(settings.target_tls_ca_file, settings.target_tls_cert_file, settings.target_tls_key_file)
    given, file = getattr(settings, f"{side}_token"), getattr(settings, f"{side}_token_file")
    token = caller_token(given, file, f"{side}_token_file", "token_file")
    return connect(address, tls=tls, token=token, timeout_s=TIMEOUT_S)
