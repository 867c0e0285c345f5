"""Attacks the promise that a new series is found by its labels at once: 1,000 times a write, then a read of it.

Each write has a new series; the Select with the token of the write must find the series by its labels, every time.
tests/soak/test_new_series_drill.py does so 10,000 times.
"""

from __future__ import annotations

from support.drills.new_series import find_each_new_series
from support.servers.logs import LogFactory

TIMES = 1_000


def test_a_new_series_is_found_by_its_labels_with_the_token_of_its_first_write(log_factory: LogFactory) -> None:
    find_each_new_series(log_factory, TIMES)
