"""Store pool: channels to all stores that the configured names resolve to, and the coverage of each store.

One thread resolves the names every ten seconds, so that pods can come and go, and reads every store's coverage each
second.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tsdb.model.clock import Clock
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic
from tsdb.query.stores.remote import RemoteStore

POLL_EVERY_S = 1.0
POLL_TIMEOUT_S = 2.0  # A frozen store is skipped after this time; reads already sent to it end by their deadline.
RESOLVE_EVERY_S = 10.0
# A pod that ended fast leaves an address that answers nothing. Reads that were sent to it before the next poll go on to
# the next store after this time.
CONNECT_S = 1.0

log = get_logger(__name__)

known_stores = gauge("tsdb_query_stores", "Stores that the configured names resolve to.")
answering_stores = gauge("tsdb_query_stores_answering", "Stores with a recent answer about their coverage.")
stores_apart = gauge(
    "tsdb_query_stores_apart",
    "Stores that answer and are not read: they belong to another experiment than this querier, or to production.",
)
resolve_failures_total = counter(
    "tsdb_query_resolve_failures_total", "Failed resolutions of store names; the known stores stay in use."
)


@dataclass(frozen=True, slots=True, order=True)
class StoreAddress:
    """The address of a store, or a name that resolves to several. The host of an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Resolve = Callable[[StoreAddress], list[StoreAddress]]
Open = Callable[[StoreAddress, StoreAddress], RemoteStore]
"""(configured name, resolved address) -> the store at that address."""


def resolve(name: StoreAddress) -> list[StoreAddress]:
    """All addresses that a name resolves to, of one family: IPv4 if there are any. Raises OSError."""
    found = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    hosts = {(family, str(address[0])) for family, _, _, _, address in found}
    # A pod with addresses of both families would count as two stores.
    first = [host for family, host in hosts if family == socket.AF_INET] or [host for _, host in hosts]
    return [StoreAddress(host, name.port) for host in sorted(first)]


class StorePool(Periodic):
    """The stores behind configured names. A component of a process: `start`, `close`, `join`. Thread-safe."""

    in_process = None

    def __init__(
        self, names: Sequence[StoreAddress], open_store: Open, clock: Clock, *, resolve: Resolve = resolve
    ) -> None:
        super().__init__("stores", POLL_EVERY_S, self.poll, at_once=False)
        self._names = tuple(names)
        self._open = open_store
        self._resolve = resolve
        self._clock = clock
        self._lock = threading.Lock()  # Guards _stores; an innermost lock.
        self._stores: dict[StoreAddress, RemoteStore] = {}
        self._resolved: dict[StoreAddress, list[StoreAddress]] = {}
        self._unresolved: dict[StoreAddress, str] = {}  # Replaced as a whole.
        self._resolved_at: float | None = None

    def all(self) -> Sequence[RemoteStore]:
        """The stores known now, ordered by address."""
        with self._lock:
            return [store for _, store in sorted(self._stores.items())]

    def away(self) -> Sequence[tuple[str, str]]:
        """(address, error) of stores that do not answer, and of names that do not resolve."""
        silent = [(store.name, store.failure) for store in self.all() if store.failure]
        return [*silent, *((str(name), error) for name, error in list(self._unresolved.items()))]

    def start(self) -> None:
        """Poll all stores once, then continue in the background."""
        self.poll()
        super().start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread and close the channels. False: it still runs."""
        ended = super().join(timeout_s)
        if ended:
            self.abort()
        return ended

    def abort(self) -> None:
        """Close all channels, which ends their calls."""
        with self._lock:
            stores, self._stores = list(self._stores.values()), {}
        for store in stores:
            store.close()

    def poll(self) -> None:
        """Resolve the names when due, and read every store's coverage. Called by one thread at a time."""
        if self._resolved_at is None or self._clock.monotonic() - self._resolved_at >= RESOLVE_EVERY_S:
            self._resolve_names()
        self.refresh(POLL_TIMEOUT_S)

    def refresh(self, timeout_s: float) -> None:
        """Read the coverage of all stores at once."""
        stores = self.all()
        calls = [(store, store.begin_refresh(timeout_s)) for store in stores]
        for store, call in calls:
            store.finish_refresh(call)
        answering_stores.set(sum(bool(store.states()) for store in stores))
        stores_apart.set(sum(store.apart for store in stores))

    def _resolve_names(self) -> None:
        self._resolved_at = self._clock.monotonic()
        unresolved: dict[StoreAddress, str] = {}
        for name in self._names:
            try:
                self._resolved[name] = self._resolve(name)
            except OSError as error:
                resolve_failures_total.inc()
                unresolved[name] = f"the name does not resolve: {error.strerror or error}"
                log.warning("store name not resolved", name=str(name), error=str(error))
        self._unresolved = unresolved
        self._replace({address: name for name in self._names for address in self._resolved.get(name, ())})

    def _replace(self, wanted: dict[StoreAddress, StoreAddress]) -> None:
        with self._lock:
            gone = [self._stores.pop(address) for address in set(self._stores) - set(wanted)]
            for address in set(wanted) - set(self._stores):
                self._stores[address] = self._open(wanted[address], address)
            known_stores.set(len(self._stores))
        _close(gone)


def _close(stores: Iterable[RemoteStore]) -> None:
    for store in stores:
        log.info("store left", store=store.name)
        store.close()
