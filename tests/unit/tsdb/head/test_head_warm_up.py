"""After the warm-up a head needs no further kernel."""

from __future__ import annotations

import pytest

from support.scripts.run import run_script


@pytest.mark.slow
def test_a_head_that_lives_after_the_warm_up_needs_no_further_kernel() -> None:
    """In a separate process, because other tests have compiled kernels in this one."""
    assert run_script("head_after_warm_up") == []


@pytest.mark.slow
def test_kernels_free_all_that_they_and_their_helpers_allocate() -> None:
    assert run_script("kernel_memory", NUMBA_NRT_STATS="1") == [0, 0]
