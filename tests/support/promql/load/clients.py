"""Clients: threads of a separate process that put random queries and read each answer whole."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from urllib.parse import urlencode

from support.promql.differential.answers import Query
from support.promql.differential.queries.dialect import dialect_of
from support.promql.differential.targets import FORM, HttpTarget
from support.promql.load.queries import queries

CLIENTS = 8
DEADLINE_S = 30.0
NICENESS = 10  # Clients are mostly on other machines: here they must not take the cores of the writer that is measured.
NETWORK_S = 5.0  # Longest time from the deadline to the last byte of the answer or the refusal, on a busy machine.
# Mistakes of the generator, and queries whose copies do not join; a limit of one query is `execution` too.
ANSWERED = (200, 400, 422)


@dataclass(slots=True)
class Asked:
    """codes: answers by code. seconds: duration of each request. failures: other codes and late answers."""

    codes: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ordered = sorted(self.seconds) or [0.0]
        p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
        times = f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms, slowest {ordered[-1]:.2f} s"
        return f"{len(self.seconds)} queries {dict(self.codes)}, {times}, {len(self.failures)} failed"


class ClientsProcess:
    """CLIENTS clients of HOST:PORT for some seconds. base_ms: the first time of the dataset."""

    def __init__(self, address: str, base_ms: int, seed: int, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._found, child = context.Pipe(duplex=False)
        self._process = context.Process(target=_serve, args=(child, address, base_ms, seed, seconds), daemon=True)
        self._process.start()
        self._wait_s = seconds + DEADLINE_S + NETWORK_S + 60.0

    @property
    def is_running(self) -> bool:
        return not self._found.poll() and self._process.is_alive()

    def finish(self) -> Asked:
        """The answers of all clients."""
        try:
            assert self._found.poll(self._wait_s), "the clients do not end"
            found: Asked = self._found.recv()
            return found
        finally:
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, address: str, base_ms: int, seed: int, seconds: float) -> None:
    os.nice(NICENESS)
    with closing(HttpTarget(address)) as target:
        dialect = dialect_of(target)
    until, asked = time.monotonic() + seconds, Asked()
    threads = [
        threading.Thread(target=_ask_until, args=(address, queries(seed + number, dialect, base_ms), until, asked))
        for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send(asked)


def _ask_until(address: str, stream: Iterator[Query], until: float, asked: Asked) -> None:
    with closing(http.client.HTTPConnection(address, timeout=DEADLINE_S + 2 * NETWORK_S)) as connection:
        for query in stream:
            if time.monotonic() >= until:
                return
            _ask(connection, query, asked)


def _ask(connection: http.client.HTTPConnection, query: Query, asked: Asked) -> None:
    began = time.monotonic()
    try:
        connection.request("POST", *_request(query), FORM)
        answer = connection.getresponse()
        code, body = answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        code, body = 0, repr(error).encode()
    seconds = time.monotonic() - began
    asked.codes[code] += 1
    asked.seconds.append(seconds)
    if code not in ANSWERED or seconds > DEADLINE_S + NETWORK_S:
        asked.failures.append(f"{code} after {seconds:.1f} s: {query}: {body[:300]!r}")


def _request(query: Query) -> tuple[str, str]:
    """The path of a request and its form."""
    form = {"query": query.text, "timeout": f"{DEADLINE_S:g}s"}
    if query.step_ms is None:
        return "/api/v1/query", urlencode({**form, "time": query.start_ms / 1000})
    times = {"start": query.start_ms / 1000, "end": query.end_ms / 1000, "step": query.step_ms / 1000}
    return "/api/v1/query_range", urlencode({**form, **times})
