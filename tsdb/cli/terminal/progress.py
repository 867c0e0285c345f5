"""Shows progress on stderr: a bar on a terminal; otherwise a line of plain text at intervals, for logs and `2>
file`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from tsdb.cli.terminal.output import note

PLAIN_EVERY_S = 10.0  # A shorter job prints no line.

Advance = Callable[[int], None]


@contextlib.contextmanager
def progress_bar(what: str, unit: str) -> Iterator[tuple[Advance, Advance]]:
    """Show progress during the block. Yields (advance, expect): add to the number done, and to the total."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        plain = PlainProgress(what, unit)
        yield plain.advance, plain.expect
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        total = 0

        def expect(more: int) -> None:
            nonlocal total
            total += more
            bar.update(task, total=total)

        yield lambda done: bar.advance(task, done), expect


class PlainProgress:
    """Prints lines such as `rebuild: 12 of 96 tasks, 40 s left`, at most one every `every_s`. One thread."""

    def __init__(
        self,
        what: str,
        unit: str,
        *,
        every_s: float = PLAIN_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = note,
    ) -> None:
        self._what = what
        self._unit = unit
        self._every_s = every_s
        self._monotonic = monotonic
        self._write = write
        self._began = monotonic()
        self._due = self._began + every_s
        self._done = 0
        self._total = 0

    def advance(self, done: int) -> None:
        """Add `done` to the number of finished units."""
        self._done += done
        self._show()

    def expect(self, more: int) -> None:
        """Add `more` to the total."""
        self._total += more
        self._show()

    def _show(self) -> None:
        now = self._monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        total = f" of {self._total}" if self._total else ""
        left = max(self._total - self._done, 0) * (now - self._began) / self._done if self._done else 0.0
        self._write(f"{self._what}: {self._done}{total} {self._unit}" + (f", {left:.0f} s left" if left else ""))
