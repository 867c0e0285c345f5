"""Start resolution: every shape of log, and changes of the log between the requests."""

from __future__ import annotations

import pytest

from tsdb.log.start import LogEnds, Start, StartCase, horizon, resolve_start

NOW = 1_000_000
HOLD = 100_000
AHEAD = 1_000
H = NOW - HOLD
C = H + AHEAD


@pytest.mark.parametrize(
    ("claim", "ends", "want"),
    [
        ("empty", LogEnds(0, None, None, 0, None), Start(StartCase.EMPTY, 0, C, True, H)),
        ("hit", LogEnds(50, NOW, 20, 0, H - 9_000), Start(StartCase.HIT, 20, C, False, H)),
        ("shorter than the hold", LogEnds(50, NOW, 0, 0, H + 5), Start(StartCase.SHORTER, 0, C, True, H)),
        (
            "trimmed long before the horizon",
            LogEnds(50, NOW, 20, 10, H - 9_000),
            Start(StartCase.HIT, 20, C, False, H),
        ),
        (
            "trimmed shortly before the horizon: clocks may step back by ahead",
            LogEnds(50, NOW, 20, 10, H - 500),
            Start(StartCase.HIT, 20, H - 500 + 2 * AHEAD, False, H),
        ),
        (
            "trimmed to after the horizon",
            LogEnds(50, NOW, 10, 10, H + 5_000),
            Start(StartCase.TRIMMED_SHORTER, 10, H + 5_000 + 2 * AHEAD, False, H),
        ),
        (
            "trimmed into a gap of offsets: complete from its first record on, as any trimmed log",
            LogEnds(50, NOW, 13, 12, H + 5_000),
            Start(StartCase.HIT, 13, H + 5_000 + 2 * AHEAD, False, H),
        ),
        (
            "trimmed between lookup and low watermark",
            LogEnds(50, NOW, 20, 30, H + 5_000),
            Start(StartCase.TRIMMED_SHORTER, 30, H + 5_000 + 2 * AHEAD, False, H),
        ),
        ("all trimmed", LogEnds(50, None, None, 50, None), Start(StartCase.TRIMMED_ALL, 50, NOW + AHEAD, False, H)),
        (
            "all older: the high watermark taken first, never the end as it is now",
            LogEnds(50, H - 1, None, 0, H - 9_000),
            Start(StartCase.ALL_OLDER, 50, C, False, H),
        ),
        (
            "first record arrives between the requests",
            LogEnds(0, NOW, 0, 0, NOW),
            Start(StartCase.SHORTER, 0, C, True, H),
        ),
        (
            "trimmed past the high watermark between the requests",
            LogEnds(50, None, None, 60, None),
            Start(StartCase.TRIMMED_ALL, 60, NOW + AHEAD, False, H),
        ),
    ],
)
def test_each_shape_of_log_has_its_start(claim: str, ends: LogEnds, want: Start) -> None:
    assert resolve_start(ends, horizon_ms=H, ahead_ms=AHEAD, now_ms=NOW) == want, claim


@pytest.mark.parametrize(
    ("tail_broker_ms", "want"), [(None, NOW - HOLD), (NOW - 5, NOW - 5 - HOLD), (NOW + 5, NOW - HOLD)]
)
def test_the_horizon_is_hold_before_the_earlier_of_now_and_the_last_record(
    tail_broker_ms: int | None, want: int
) -> None:
    assert horizon(tail_broker_ms, NOW, HOLD) == want
