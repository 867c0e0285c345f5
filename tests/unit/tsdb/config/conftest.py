from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell sets must not decide a test."""
    for name in list(os.environ):
        if name.startswith("TSDB_"):
            monkeypatch.delenv(name)
