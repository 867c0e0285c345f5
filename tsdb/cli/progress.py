"""Progress bars on stderr; nothing where stderr is no terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(what: str, unit: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A bar, as (advance by, add to the total)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=None)
        total = 0

        def expect(more: int) -> None:
            nonlocal total
            total += more
            bar.update(task, total=total)

        yield lambda done: bar.advance(task, done), expect
