"""Progress of the kernels at a role's start: counts, time left, and how often the log repeats it."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from numba.core import event

from tsdb.roles.kernels import KernelLog, KernelProgress, KernelStart


class Role:
    """A role of four kernels that compile in 3 s each, with the clock and the display of its start."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ready = 0
        self.shown: list[str] = []
        self.ended = 0
        self.kernels = KernelStart(self, counts=lambda: (self.ready, 4), monotonic=lambda: self.now)

    def show(self, progress: KernelProgress) -> None:
        self.shown.append(str(progress))

    def end(self) -> None:
        self.ended += 1

    def compile(self) -> None:
        with event.trigger_event("numba:compile", data={"dispatcher": SimpleNamespace(py_func=Role)}):
            self.now += 3.0
        self.ready += 1

    def load(self) -> None:
        self.ready += 1


def never() -> bool:
    return False


def test_progress_shows_counts_and_the_seconds_left_from_the_first_compilation_on() -> None:
    role = Role()
    role.kernels.run([role.load, role.compile, role.compile, role.compile], never)
    assert role.shown == [
        "compiling kernels, 1 of 4",
        "compiling kernels, 2 of 4, 6 s left",
        "compiling kernels, 3 of 4, 3 s left",
    ]
    assert role.ended == 1
    assert role.kernels.progress() is None


def test_a_start_from_the_cache_shows_nothing() -> None:
    role = Role()
    role.kernels.run([role.load, lambda: role.shown.append(str(role.kernels.progress()))], never)
    assert role.shown == ["None"]


def test_a_role_that_ends_compiles_no_further_kernel() -> None:
    role = Role()

    def two() -> None:
        role.compile()
        role.compile()

    role.kernels.run([two, role.compile], lambda: role.ready > 0)
    assert role.ready == 1
    assert role.ended == 1


def test_an_error_of_a_warm_up_passes_through() -> None:
    def fail() -> None:
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        Role().kernels.run([fail], never)


def test_the_log_has_the_first_progress_and_then_one_line_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    shown = KernelLog(5.0, lambda: now)
    for done in range(8):
        shown.show(KernelProgress(done, 8, None if done == 0 else 2 * (8 - done)))
        now += 2.0
    # The text of an event depends on the configured format.
    lines = [str(record.msg) for record in caplog.records if "compiling kernels" in str(record.msg)]
    assert len(lines) == 3
    assert "seconds_left" not in lines[0]
    assert all("seconds_left" in line for line in lines[1:])
