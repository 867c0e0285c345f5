"""After the warm-up a chunk stage needs no further kernel."""

from __future__ import annotations

import pytest

from support.scripts.run import run_script


@pytest.mark.slow
def test_a_stage_that_lives_after_the_warm_up_needs_no_further_kernel() -> None:
    """In a separate process, because other tests have compiled kernels in this one."""
    assert run_script("chunks_after_warm_up") == []
