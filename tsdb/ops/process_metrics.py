"""Exports metrics of the process itself: memory, CPU, files and start time under their customary names, and its
version."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import ProcessCollector

from tsdb.ops.metrics import gauge, registry


@cache  # Cached, because it is read from files and is part of every answer to a probe.
def package_version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare source tree."""
    try:
        return version("kafka-tsdb")
    except PackageNotFoundError:
        return "unknown"


ProcessCollector(registry=registry)
gauge("tsdb_build_info", "Always 1; the label is the version.", "version", (package_version(),)).labels(
    package_version()
).set(1)
