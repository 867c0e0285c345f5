"""The drill of one target over its limit of series: the other targets of its Prometheus stay fresh."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from support.drills.untouched import untouched
from support.senders.prometheus import Recorder, agent
from support.servers.deployments import Deployment
from support.servers.logs import wait_until

SCRAPE_S = 2
FRESH_WITHIN_S = 60.0  # Bounds the wait: a queue that sends refused samples again never comes to the next ones.
LONG_S = 600.0  # A drill of this length has a tighter bound.
LONG_WITHIN_S = 2 * SCRAPE_S
FIRST_WITHIN_S = 60.0
ROUNDS_MIN = 3
SERIES_MAX = 50  # source_series_max of the gateway.
GOOD, OVER = ("one", "two"), "over"
SERIES = 20  # Page of a good target.
OVER_SERIES = 4 * SERIES_MAX
FLAGS = ("--source-series-max", str(SERIES_MAX))


@contextmanager
def page(series: int, *, churns: bool) -> Iterator[str]:
    """The address of a target. churns: each scrape has new series beside one that stays."""
    scrapes = count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scrape = next(scrapes)
            mark = f',scrape="{scrape}"' if churns else ""
            lines = [f"page_scrapes_total {scrape}", *(f'page_value{{n="{n}"{mark}}} {scrape}' for n in range(series))]
            body = "\n".join([*lines, ""]).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def others_stay_fresh(scratch: Path, deployment: Deployment, *, seconds: float) -> None:
    """A Prometheus with one queue and three targets, one of which brings new series at each scrape, far over its limit.

    Each scrape of the two others that a second receiver has is at the store while that target goes on: in a long drill
    within two scrapes and the delay that an untouched server had meanwhile. The deployment has FLAGS.
    """
    with ExitStack() as stack:
        jobs = {name: stack.enter_context(page(SERIES, churns=False)) for name in GOOD}
        jobs[OVER] = stack.enter_context(page(OVER_SERIES, churns=True))
        recorder = stack.enter_context(Recorder())
        receivers = {"tsdb": deployment.gateway.http, "recorder": recorder.address}
        stack.enter_context(agent(scratch, jobs, receivers, scrape_s=SCRAPE_S, shards=1))
        wait_until(lambda: all(_stored(deployment, name) for name in GOOD), FIRST_WITHIN_S)
        slowest_s = stack.enter_context(untouched())
        give_up_at, rounds, longest_s = time.monotonic() + seconds, 0, 0.0
        while time.monotonic() < give_up_at or rounds < ROUNDS_MIN:
            sent = {name: _sent(recorder, name) for name in GOOD}

            def fresh(sent: dict[str, int] = sent) -> bool:
                return all(_stored(deployment, name) >= sent[name] for name in sent)

            slowest_s()
            began = time.monotonic()
            wait_until(
                fresh,
                FRESH_WITHIN_S,
                describe=lambda sent=sent: f"{sent}, { ({name: _stored(deployment, name) for name in GOOD}) }",  # type: ignore[misc]
            )
            waited_s, paused_s = time.monotonic() - began, slowest_s()
            assert seconds < LONG_S or waited_s <= LONG_WITHIN_S + paused_s, f"{waited_s=}, {paused_s=}"
            longest_s = max(longest_s, waited_s)
            rounds += 1
            threading.Event().wait(SCRAPE_S / 2)
        print(f"fresh {rounds} times in {seconds:g} s, within {longest_s:.1f} s")
        print(f"beside {_over(recorder)} series of the target over its limit")


def _sent(recorder: Recorder, job: str) -> int:
    """Time of the last scrape of a target that the recorder has; 0 for none."""
    wanted = "__name__\xffpage_scrapes_total\xff".encode("latin-1")
    of_job = f"\xffjob\xff{job}".encode("latin-1")
    found = (
        max(values) for labels, values in recorder.samples().items() if labels.startswith(wanted) and of_job in labels
    )
    return max(found, default=0)


def _stored(deployment: Deployment, job: str) -> int:
    now_ms = time.time_ns() // 1_000_000
    with deployment.reader() as reader:
        found = reader.select(f'page_scrapes_total{{job="{job}"}}', now_ms - 600_000, now_ms + 60_000)
        return max((int(ts_ms.max()) for _, ts_ms, _ in found if len(ts_ms)), default=0)


def _over(recorder: Recorder) -> int:
    return sum(f"\xffjob\xff{OVER}".encode("latin-1") in labels for labels in recorder.samples())
