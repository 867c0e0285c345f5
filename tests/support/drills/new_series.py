"""New series written and then read with the token of their write, by many threads at once."""

from __future__ import annotations

import itertools
import threading

from support.servers.logs import LogFactory
from support.servers.node import Gateway, Node, label_set
from tsdb.client import ReadOptions

THREADS = 24


def find_each_new_series(logs: LogFactory, times: int) -> None:
    """Create the topics and start a store; then `times` times write a sample of a new series and select the series.

    Raises the first error, and asserts that every series was found and the log has no hole.
    """
    logs.create(3)
    log = logs.open()
    gateway = Gateway(log)
    with Node(log).wait_ready_on_entry() as node:
        round_ = _Round(gateway, node, times)
        round_.run()
        if round_.errors:
            raise round_.errors[0]
        assert next(round_.done) == times
        assert [s.state.holes for s in node.statuses()] == [(), (), ()]
        assert sum(p.head.sizes().series for p in node.store.partitions.values()) == times


class _Round:
    """Threads that share a countdown of new series."""

    def __init__(self, gateway: Gateway, node: Node, times: int) -> None:
        self._gateway = gateway
        self._node = node
        self._numbers = iter(range(times))
        self._lock = threading.Lock()
        self.done = itertools.count()
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._go) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _go(self) -> None:
        try:
            while (number := self._next()) is not None and not self.errors:
                self._once(number)
                next(self.done)
        except BaseException as error:
            self.errors.append(error)

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _once(self, number: int) -> None:
        at_ms = self._gateway.clock.now_ms()
        labels = label_set(number, name=f"new_{number % 7}", instance=number % 50)
        tokens = self._gateway.write([labels], at_ms, float(number))
        selector = f'new_{number % 7}{{n="{number}"}}'
        result = self._node.ask(selector, at_ms, at_ms + 1, options=ReadOptions(after=tokens))
        assert list(result.canonical) == [labels], f"series {number} is missing: {result}"
        assert (result.ts_ms.tolist(), result.values.tolist()) == ([at_ms], [float(number)])
