"""Fixtures of several end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.deployments import Deployment, embedded, on_kafka


@pytest.fixture(params=["sqlite", "kafka"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """A gateway and a store for one test, on each log. A test file with another deployment defines this name anew."""
    if request.param == "sqlite":
        with embedded(tmp_path) as running:
            yield running
    else:
        with on_kafka(tmp_path, request.getfixturevalue("kafka").bootstrap) as running:
            yield running
