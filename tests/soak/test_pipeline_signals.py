"""Attacks the end of `tsdb spark pipeline`: a signal to every process of it at once, as systemd stops a service."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark.pipeline_service import WITHIN_S, Strike, as_systemd, as_timeout, ends_well

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2 * WITHIN_S)]


@pytest.mark.parametrize("strike", [as_timeout, as_systemd])
def test_a_signal_to_all_of_its_processes_ends_it_with_the_summary(strike: Strike, tmp_path: Path) -> None:
    ends_well(strike, tmp_path)
