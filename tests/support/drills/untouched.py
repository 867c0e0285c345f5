"""An untouched server: answers one small page in a separate process, and is asked all the time.

Its slowest answer shows how long the machine delayed a process that nobody attacked, in the same minutes.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from subprocess import DEVNULL, PIPE

EVERY_S = 0.05
SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def untouched() -> Iterator[Callable[[], float]]:
    """Gives a function that returns the seconds of the slowest answer since the last call."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=DEVNULL, stdout=PIPE, text=True) as server:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        took_s = [0.0]
        over = threading.Event()

        def ask() -> None:
            while not over.wait(EVERY_S):
                began = time.monotonic()
                with closing(urllib.request.urlopen(address, timeout=120)):
                    took_s.append(time.monotonic() - began)

        def slowest_s() -> float:
            nonlocal took_s
            past, took_s = took_s, [0.0]
            return max(past)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield slowest_s
        finally:
            over.set()
            thread.join(120.0)
            server.kill()
