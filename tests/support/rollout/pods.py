"""A pod, as the kubelet runs it: init containers, one container, probes, and the order to stop.

The container is a process of a release. Its commands, variables, probes and times are those of the rendered object.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.rollout.black_hole import BlackHole
from support.rollout.releases import Release
from support.servers.processes import TSDB

TICK_S = 0.1
RESTART_AFTER_S = 2.0  # Of an init container that failed.
LOG_TAIL = 4000


class Pod:
    """One pod from its creation to its end, on its own thread. Properties may be read from any thread.

    template: the template of the workload. config: the file of settings. ports: port numbers by the name of the
    container's port. changed: is called after each change that endpoints depend on. wrapper: see Names.
    """

    def __init__(
        self,
        name: str,
        address: str,
        template: Mapping[str, Any],
        release: Release,
        *,
        config: Path,
        scratch: Path,
        wrapper: tuple[str, ...],
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.address = address
        self.labels: Mapping[str, str] = template["metadata"]["labels"]
        self.release = release
        self.log_file = scratch / f"{name}-{release.version}-{address}.log"
        self.ready_since: float | None = None
        self.started_at: float | None = None
        self.signalled_at: float | None = None
        self.gone_at: float | None = None
        self.faults: list[str] = []
        self._spec = template["spec"]
        self._container = self._spec["containers"][0]
        self._config = config
        self._wrapper = wrapper
        self._changed = changed
        self._stopping = threading.Event()
        self._hole: BlackHole | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def delete(self) -> None:
        """Begin to stop: `preStop`, SIGTERM, and SIGKILL at the end of the grace period. Returns at once."""
        self._stopping.set()
        self._changed()

    def kill(self) -> None:
        """End it at once, for the end of a test."""
        self._stopping.set()
        while self._thread.is_alive():
            if self._process is not None:
                self._process.kill()
            self._thread.join(TICK_S)
        self.close()

    def close(self) -> None:
        """Give its address back."""
        if self._hole is not None:
            self._hole.close()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def ready_for(self, seconds: float) -> bool:
        """Whether it has been ready for this long."""
        since = self.ready_since
        return since is not None and time.monotonic() - since >= seconds

    def _run(self) -> None:
        self._changed()
        for container in self._spec.get("initContainers", ()) if self.release.keeps_order else ():
            while not self._stopping.is_set() and self._init(container) != 0:
                self._stopping.wait(RESTART_AFTER_S)
        if not self._stopping.is_set():
            self._process, self.started_at = self._start(self._container), time.monotonic()
            self._watch(self._process)
            self._stop(self._process)
            self._hole = BlackHole(self.address, [port["containerPort"] for port in self._container["ports"]])
        self.ready_since, self.gone_at = None, time.monotonic()
        self._changed()

    def _init(self, container: Mapping[str, Any]) -> int | None:
        process = self._start(container)
        while (code := _ended(process, TICK_S)) is None and not self._stopping.is_set():
            pass
        if code is None:
            process.kill()
            process.wait()
        return code

    def _start(self, container: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.release.environment, **self._variables(container)}
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [*self._wrapper, *TSDB, *container["args"]],
                cwd=self.release.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def _variables(self, container: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in container.get("env", ()):
            value = one.get("value")
            if value is None:
                value = self.labels[one["valueFrom"]["fieldRef"]["fieldPath"].split("'")[1]]
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[one["name"]] = value
        for port in container.get("ports", ()):
            # 0.0.0.0 is an address of every pod here: each one listens on its own.
            found[f"TSDB_{port['name'].upper()}"] = f"{self.address}:{port['containerPort']}"
        return {**found, "TSDB_CONFIG": str(self._config)} if "TSDB_CONFIG" in found else found

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Probe until the pod is deleted. A process that ends by itself is a fault of the pod."""
        started, live, ready = (_Probe(self, self._container[f"{kind}Probe"]) for kind in _KINDS)
        while not started.succeeded and process.poll() is None and not self._stopping.wait(TICK_S):
            started.look()
        while not self._stopping.wait(TICK_S):
            if process.poll() is not None:
                self.faults.append(f"{self.name} ended by itself, exit code {process.returncode}\n{self._tail()}")
                return
            live.look()
            if live.failed:
                self.faults.append(f"{self.name} failed its liveness probe")
                return
            if ready.look():
                self._set_ready(ready.succeeded)

    def _set_ready(self, ready: bool) -> None:
        if ready != (self.ready_since is not None):
            self.ready_since = time.monotonic() if ready else None
            self._changed()

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        deleted_at = time.monotonic()
        pause_s = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        if process.poll() is None:
            _ended(process, pause_s)
            self.signalled_at = time.monotonic()
            process.terminate()
            code = _ended(process, deleted_at + self._spec["terminationGracePeriodSeconds"] - self.signalled_at)
            if code is None:
                self.faults.append(f"{self.name} was killed after its grace period\n{self._tail()}")
                process.kill()
            elif code != 0:
                self.faults.append(f"{self.name} ended with {code} after SIGTERM\n{self._tail()}")
        process.wait()

    def _tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-LOG_TAIL:]


_KINDS = ("startup", "liveness", "readiness")


class _Probe:
    """A probe of a container. `look` executes it when it is due."""

    def __init__(self, pod: Pod, probe: Mapping[str, Any]) -> None:
        ports = {port["name"]: port["containerPort"] for port in pod._container["ports"]}
        get = probe["httpGet"]
        self._url = f"http://{pod.address}:{ports[get['port']]}{get['path']}"
        self._every_s = probe["periodSeconds"]
        self._timeout_s = probe.get("timeoutSeconds", 1)
        self._failures_max: int = probe["failureThreshold"]
        self._due = time.monotonic()
        self._failures = 0
        self.succeeded = False

    @property
    def failed(self) -> bool:
        return self._failures >= self._failures_max

    def look(self) -> bool:
        """Ask when it is due. Returns whether the state may have changed: after a success, or enough failures."""
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._every_s
        if self._answers():
            self._failures, self.succeeded = 0, True
            return True
        self._failures += 1
        if self.failed:
            self.succeeded = False
        return self.failed

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._url, timeout=self._timeout_s) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False


def _ended(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(max(0.0, within_s))
    except subprocess.TimeoutExpired:
        return None
