"""Attacks the promise that a new series is found by its labels at once: 10,000 times a write, then a read of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drills.new_series import find_each_new_series
from support.servers.logs import LogFactory

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

TIMES = 10_000


def test_10_000_new_series_are_found_by_their_labels_with_the_token_of_their_first_write(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        find_each_new_series(logs, TIMES)
