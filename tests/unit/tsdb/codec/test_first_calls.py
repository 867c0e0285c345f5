"""Threads that call a kernel for the first time at once leave it fast for later calls."""

from __future__ import annotations

import pytest

from support.scripts.run import run_script


@pytest.mark.slow
def test_no_later_call_leaves_the_fast_path() -> None:
    assert [run_script("first_calls") for _ in range(3)] == [0, 0, 0]
