"""Engines: names in client ids, and the moment from which a window is overdue."""

from __future__ import annotations

import pytest

from tsdb.chunks.engine import Engine, engine_of, windows_overdue
from tsdb.model.time_set import PRODUCTION

WINDOW, GRACE, SPREAD = PRODUCTION.window_ms, PRODUCTION.grace_ms, PRODUCTION.spread_ms
EMITTED = 1_000 * WINDOW


@pytest.mark.parametrize(
    ("client_id", "engine"),
    [("tsdb-python", "python"), ("team-a-spark", "spark"), ("spark", "spark"), ("tsdb", None), ("", None)],
)
def test_the_last_word_of_a_client_id_is_the_engine(client_id: str, engine: Engine | None) -> None:
    assert engine_of(client_id) == engine


@pytest.mark.parametrize(
    ("after_ms", "engine", "windows"),
    [
        (WINDOW + GRACE - 1, "spark", 0),
        (WINDOW + GRACE, "spark", 1),
        (WINDOW + GRACE, "python", 0),
        (WINDOW + GRACE + SPREAD - 1, "python", 0),
        (WINDOW + GRACE + SPREAD, "python", 1),
        (WINDOW + GRACE + SPREAD - 1, None, 0),
        (7 * WINDOW + GRACE + SPREAD, None, 7),
        (-3 * WINDOW, "spark", 0),
    ],
)
def test_a_window_is_overdue_from_when_its_engine_has_to_have_emitted_it(
    after_ms: int, engine: Engine | None, windows: int
) -> None:
    assert windows_overdue(EMITTED, EMITTED + after_ms, PRODUCTION, engine) == windows
