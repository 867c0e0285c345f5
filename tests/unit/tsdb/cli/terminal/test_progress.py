"""Without a terminal, progress is a plain line at intervals; a short job prints none."""

from __future__ import annotations

from tsdb.cli.terminal.progress import PLAIN_EVERY_S, PlainProgress


def test_plain_progress_says_how_far_and_how_long_still() -> None:
    now = 100.0
    lines: list[str] = []
    progress = PlainProgress("rebuild", "tasks", monotonic=lambda: now, write=lines.append)
    progress.expect(96)
    progress.advance(6)
    assert lines == [], "what ends soon says nothing"
    now += PLAIN_EVERY_S
    progress.advance(6)
    assert lines == ["rebuild: 12 of 96 tasks, 70 s left"]
    progress.advance(1)
    assert len(lines) == 1
    now += 3 * PLAIN_EVERY_S
    progress.advance(83)
    assert lines[1:] == ["rebuild: 96 of 96 tasks"]


def test_without_a_total_it_counts() -> None:
    now = 0.0
    lines: list[str] = []
    progress = PlainProgress("sent", "samples", every_s=1.0, monotonic=lambda: now, write=lines.append)
    now = 2.0
    progress.advance(7)
    assert lines == ["sent: 7 samples"]
