from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove TSDB_* variables of the developer's shell, which would change results."""
    for name in list(os.environ):
        if name.startswith("TSDB_"):
            monkeypatch.delenv(name)
