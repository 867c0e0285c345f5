"""`tsdb spark pipeline` as a service runs it: a signal to its process group ends it well, and its ports tell of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark.pipeline_service import WITHIN_S, as_timeout, ends_well


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_signal_to_its_process_group_ends_it_with_the_summary(tmp_path: Path) -> None:
    ends_well(as_timeout, tmp_path)
