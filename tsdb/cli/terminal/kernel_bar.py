"""The bar of a role that compiles kernels at its start, on a terminal. Begins with the first kernel that compiles."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tsdb.cli.terminal.progress import Advance, progress_bar

if TYPE_CHECKING:
    from tsdb.roles.kernels import KernelProgress  # It loads numba, which client commands do without.


class KernelBar:
    """A display for `tsdb.roles.kernels.KernelStart`."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._advance: Advance | None = None
        self._done = 0

    def show(self, progress: KernelProgress) -> None:
        if self._advance is None:
            self._advance, expect = self._open.enter_context(progress_bar("compiling", "kernels"))
            expect(progress.total)
        self._advance(progress.done - self._done)
        self._done = progress.done

    def end(self) -> None:
        self._open.close()
