"""The names of a cluster without a cluster: each pod sees one file of hosts, in its own mount namespace.

A change shows late, as with the caches of DNS: answers are always as old as a cache may keep them.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.ops.periodic import Periodic

FILE_BYTES = 8192  # Always written whole by one call, so that no resolver reads half of a change.
LOOK_EVERY_S = 0.25

Addresses = Mapping[str, Sequence[str]]


class Names:
    """Names and their addresses. A context manager. Thread-safe. age_s: delay after which a change shows. It only
    grows.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._hosts = folder / "hosts"
        self._switch = folder / "nsswitch.conf"
        # Resolvers answer this for a name that does not exist.
        self._switch.write_text("hosts: files\npasswd: files\ngroup: files\n")
        self.age_s = 0.0
        self._lock = threading.Lock()  # Guards _addresses and _changes.
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._changes: list[tuple[float, dict[str, tuple[str, ...]]]] = []
        self._write({})
        self._publisher = Periodic("names", LOOK_EVERY_S, self._publish_due)

    def __enter__(self) -> Self:
        self._publisher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._publisher.close()
        assert self._publisher.join(5.0)

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command before the command of a process that shall see these names. It keeps the process id."""
        script = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"'
        user = () if os.geteuid() == 0 else ("--map-root-user",)
        return ("unshare", "--mount", *user, "sh", "-c", script, str(self._hosts), str(self._switch))

    def check(self) -> None:
        """Fail with the reason where this machine gives a process no mount namespace."""
        done = subprocess.run([*self.wrapper, "true"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"the names of pods need a mount namespace (unshare --mount): {done.stderr}"

    def set(self, name: str, addresses: Sequence[str]) -> None:
        """Change the addresses of a name."""
        with self._lock:
            self._addresses[name] = tuple(sorted(addresses))
            self._changes.append((time.monotonic() + self.age_s, dict(self._addresses)))

    def _publish_due(self) -> None:
        with self._lock:
            due = [addresses for at, addresses in self._changes if at <= time.monotonic()]
            self._changes = self._changes[len(due) :]
        if due:
            self._write(due[-1])

    def _write(self, addresses: Addresses) -> None:
        lines = [f"{address} {name}" for name, all_of in addresses.items() for address in all_of]
        text = "\n".join(["127.0.0.1 localhost", *lines, ""]).encode()
        assert len(text) <= FILE_BYTES
        # The file is written in place, because running pods mount this very file.
        with self._hosts.open("r+b" if self._hosts.exists() else "wb") as file:
            os.pwrite(file.fileno(), text.ljust(FILE_BYTES, b"\n"), 0)
