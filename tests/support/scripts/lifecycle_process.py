"""A process with three components that print their events on stdout. Argument: the fault of one of them, or a kind of
thread that fails (DYING)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from tsdb.ops.lifecycle import run_until_signal
from tsdb.ops.logs import configure_logging
from tsdb.ops.periodic import Periodic
from tsdb.ops.queue_threads import QueueThreads
from tsdb.ops.threads import ThreadComponent, new_thread, unattended


def say(text: str) -> None:
    print(text, flush=True)


class Part:
    """A component with the fault named by `fault`; otherwise correct."""

    def __init__(self, name: str, fault: str = "") -> None:
        self._name = name
        self._fault = fault
        self._never = threading.Event()

    def start(self) -> None:
        say(f"start {self._name}")
        if self._fault == "start":
            raise RuntimeError(f"{self._name} cannot start")

    def close(self) -> None:
        say(f"close {self._name}")
        if self._fault == "close":
            raise RuntimeError(f"{self._name} cannot close")

    def join(self, timeout_s: float) -> bool:
        if self._fault == "stuck":
            say(f"stuck {self._name}")
            return self._never.wait()
        if self._fault == "hang":
            say(f"waiting {self._name}")
            return self._never.wait(timeout_s)
        say(f"join {self._name}")
        return True

    def abort(self) -> None:
        say(f"abort {self._name}")


class Breaking(Part):
    """A component that fails once it runs."""

    def failure(self) -> BaseException | None:
        return RuntimeError("the disk is gone")


def broken(*_: object) -> None:
    raise RuntimeError("the thread broke")


class Failing(ThreadComponent):
    """A part of another component: the list of components does not have it."""

    def _run(self) -> None:
        broken()


def queue_thread() -> None:
    threads = QueueThreads("work", 1, broken)
    threads.start()
    threads.put("work")


def callback_of_a_future() -> None:
    future: Future[None] = Future()
    future.add_done_callback(unattended(broken, "answers"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(future.set_result, None).result()


# One function for each kind of thread or callback. Each fails by an exception.
DYING: Mapping[str, Callable[[], object]] = {
    "thread of a library": lambda: threading.Thread(target=broken).start(),
    "new thread": lambda: new_thread(broken, "new").start(),
    "thread that exits": lambda: new_thread(sys.exit, "exiting", 0).start(),
    "component": lambda: Failing("failing").start(),
    "periodic": lambda: Periodic("looks", 1.0, broken).start(),
    "queue": queue_thread,
    "callback": callback_of_a_future,
}

if __name__ == "__main__":
    configure_logging(json=True)
    fault, drain_s = sys.argv[1], float(sys.argv[2])
    middle = Breaking("middle") if fault == "break" else Part("middle", fault)
    parts = [Part("log"), middle, Part("server")]
    if fault == "thread":  # The thread is not a daemon, like a pool's threads, so the interpreter waits for it.
        threading.Thread(target=threading.Event().wait, name="long-work").start()

    def on_started() -> None:
        say("started")
        if fault in DYING:
            DYING[fault]()

    sys.exit(run_until_signal(parts, drain_s, on_started=on_started))
