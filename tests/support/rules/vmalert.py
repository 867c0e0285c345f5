"""vmalert, and an Alertmanager that keeps the alerts it gets."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stack.ports import Ports

STOPS_WITHIN_S = 60.0


class Notifier:
    """Takes alerts as an Alertmanager does. A context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards _alerts.
        self._alerts: list[dict[str, Any]] = []
        notifier = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                alerts = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with notifier._lock:
                    notifier._alerts += alerts
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Notifier:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts so far."""
        with self._lock:
            return list(self._alerts)


@contextmanager
def vmalert(program: Path, scratch: Path, flags: Sequence[str]) -> Iterator[None]:
    """A running vmalert. It writes its last results when the block ends."""
    log = scratch / "vmalert.log"
    with Ports(1) as ports, log.open("wb") as output:
        command = [str(program), *flags, f"-httpListenAddr=127.0.0.1:{ports.numbers[0]}"]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            yield
            process.terminate()
            assert process.wait(STOPS_WITHIN_S) == 0, log.read_text()[-4000:]
        except BaseException as error:
            error.add_note(log.read_text()[-4000:])
            raise
        finally:
            process.kill()
            process.wait()
