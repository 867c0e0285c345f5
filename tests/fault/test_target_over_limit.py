"""Attacks the promise that one source over its limit harms no other, with a real Prometheus as the sender."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.senders.target_over_limit import FLAGS, others_stay_fresh
from support.servers.deployments import embedded

SOAK_S = 600.0


def test_one_target_over_its_series_keeps_no_other_target_of_its_prometheus_waiting(tmp_path: Path) -> None:
    with embedded(tmp_path, *FLAGS) as deployment:
        others_stay_fresh(tmp_path, deployment, seconds=12.0)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_minutes_of_a_target_over_its_series_keep_no_other_waiting(tmp_path: Path) -> None:
    with embedded(tmp_path, *FLAGS) as deployment:
        others_stay_fresh(tmp_path, deployment, seconds=SOAK_S)
