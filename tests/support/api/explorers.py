"""Open explorers: threads of a separate process that refresh a graph each second, as pages with live tail do."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import threading
import time
from contextlib import closing
from multiprocessing.connection import Connection
from urllib.parse import urlencode

from support.api.prometheus_server import FORM

TIMEOUT_S = 60.0
NICENESS = 10  # Browsers are on other machines: here they must not take the cores of the reads that are measured.


class Explorers:
    """`count` explorers of HOST:PORT, each with one panel. A context manager; at its end all connections are cut."""

    def __init__(self, address: str, count: int, query: str, *, range_text: str = "5m", every_s: float = 1.0) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers, child = context.Pipe(duplex=False)
        asked = urlencode({"query": query, "range": range_text, "points": 1000, "refresh": 1})
        self._process = context.Process(target=_serve, args=(child, address, count, asked, every_s), daemon=True)

    def __enter__(self) -> Explorers:
        self._process.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.join()

    def wait_for(self, answers: int) -> None:
        """Wait until `answers` graphs came. AssertionError for one that was refused."""
        for _ in range(answers):
            assert self._answers.poll(TIMEOUT_S), "no graph comes"
            problem = self._answers.recv()
            assert not problem, problem

    def drain(self) -> int:
        """Graphs since the last call. AssertionError for one that was refused."""
        count = 0
        while self._answers.poll():
            problem = self._answers.recv()
            assert not problem, problem
            count += 1
        return count


def _serve(pipe: Connection, address: str, count: int, asked: str, every_s: float) -> None:
    os.nice(NICENESS)
    lock = threading.Lock()  # Guards the pipe.

    def explore() -> None:
        with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
            while True:
                connection.request("POST", "/ui/graph", asked, FORM)
                answer = connection.getresponse()
                found = json.loads(answer.read())
                with lock:
                    pipe.send("" if found["status"] == "success" else str(found))
                time.sleep(every_s)

    threads = [threading.Thread(target=explore) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
