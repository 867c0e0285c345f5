"""An archive of a server's loaded classes (class data sharing): a JVM that maps it starts with 0.6 of the CPU."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

from stack.maven import JarSet, jars


def shared_classes(jar_set: JarSet, record: Callable[[str], bool]) -> str:
    """The JVM option by which a server uses its archive, made once beside its jars.

    record(option): runs the server with the option that writes the archive as the server ends; False if it was killed.
    Without an archive, and with one of another JVM or other jars, the JVM reads the classes from the jars.
    """
    folder = jars(jar_set)
    archive = folder.with_name(f"{folder.name}.jsa")
    if not archive.exists():
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                scratch = folder.with_name(f"{folder.name}.{os.getpid()}.jsa")
                if record(f"-XX:ArchiveClassesAtExit={scratch}") and scratch.exists():
                    scratch.rename(archive)
    return f"-XX:SharedArchiveFile={archive}"
