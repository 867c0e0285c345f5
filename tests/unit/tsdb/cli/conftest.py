"""A shell and a server for the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer


@pytest.fixture
def shell(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("TSDB_ADDRESS", "TSDB_TOKEN", "TSDB_TOKEN_FILE", "TSDB_TLS_CA", "TSDB_TLS_CERT", "TSDB_TLS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Shell(capsysbinary, monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running
