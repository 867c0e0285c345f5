"""A process starts in order, drains on SIGTERM within one deadline, and says by its exit code how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.scripts import lifecycle_process
from tsdb.ops.lifecycle import Deadline

ENDED = ["close server", "close middle", "close log", "join server", "join middle", "join log"]


@contextmanager
def process(fault: str = "none", drain_s: float = 20) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(lifecycle_process.__file__)), fault, str(drain_s)]
    root = Path(__file__).resolve().parents[4]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, env={"PYTHONPATH": str(root)}
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def read_until(running: subprocess.Popen[str], line: str) -> list[str]:
    assert running.stdout
    seen: list[str] = []
    while not seen or seen[-1] != line:
        got = running.stdout.readline()
        assert got, f"ended after {seen}: {running.stderr.read() if running.stderr else ''}"
        seen.append(got.strip())
    return seen


def rest(running: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = running.communicate(timeout=60)
    return running.returncode, out.split("\n")[:-1], err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_in_reverse_order_and_exits_0(number: signal.Signals) -> None:
    with process() as running:
        assert read_until(running, "started") == ["start log", "start middle", "start server", "started"]
        running.send_signal(number)
        code, lines, _ = rest(running)
    assert (code, lines) == (0, ENDED)


def test_a_drain_past_its_deadline_is_aborted_and_exits_1() -> None:
    with process("hang", drain_s=0.3) as running:
        read_until(running, "started")
        running.terminate()
        code, lines, err = rest(running)
    assert code == 1
    assert lines[-2:] == ["abort middle", "join log"]
    assert "work dropped at the end" in err


def test_a_second_signal_cuts_the_drain_short() -> None:
    with process("hang", drain_s=600) as running:
        read_until(running, "started")
        running.terminate()
        read_until(running, "waiting middle")
        running.terminate()
        code, lines, _ = rest(running)
    assert code == 1
    assert lines[-2:] == ["abort middle", "join log"]


def test_a_component_that_breaks_stops_the_process_with_its_text() -> None:
    with process("break") as running:
        code, lines, err = rest(running)
    assert (code, lines[4:]) == (1, ENDED)
    assert "the disk is gone" in err


@pytest.mark.parametrize("kind", lifecycle_process.DYING)
def test_a_thread_or_callback_that_fails_ends_its_process(kind: str) -> None:
    with process(kind) as running:
        code, lines, err = rest(running)
    assert (code, lines[4:]) == (1, ENDED)
    assert "thread failed" in err


STORM = """
import signal
from tsdb.ops.lifecycle import _Stop

for number in range(20_000):
    stop = _Stop()
    signal.signal(signal.SIGALRM, stop.on_signal)
    signal.setitimer(signal.ITIMER_REAL, 20e-6 + number % 100 * 1e-6)
    while not stop.wait(1e-6):
        pass
    assert stop.count == 1
"""


@pytest.mark.slow
def test_a_signal_may_interrupt_the_wait_for_it_anywhere() -> None:
    root = Path(__file__).resolve().parents[4]
    subprocess.run([sys.executable, "-c", STORM], cwd=root, env={"PYTHONPATH": str(root)}, timeout=60, check=True)


def test_a_component_that_cannot_start_ends_those_before_it() -> None:
    with process("start") as running:
        code, lines, err = rest(running)
    assert code == 1
    assert lines == ["start log", "start middle", "close middle", "close log", "join middle", "join log"]
    assert "middle cannot start" in err


def test_a_component_that_cannot_close_does_not_keep_the_others_from_it() -> None:
    with process("close") as running:
        read_until(running, "started")
        running.terminate()
        code, lines, err = rest(running)
    assert (code, lines) == (1, ENDED)
    assert "middle cannot close" in err


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stuck", "thread"])
def test_work_that_nothing_stops_ends_with_the_process_after_the_drain(fault: str) -> None:
    with process(fault, drain_s=1) as running:
        read_until(running, "started")
        running.terminate()
        code, _, err = rest(running)
    assert code == 1
    assert "work outlived the drain" in err
    assert ("long-work" in err) == (fault == "thread")


def test_a_deadline_counts_down_to_zero_and_not_below() -> None:
    assert 9 < Deadline.after(10).remaining() <= 10
    assert not Deadline.after(10).expired
    assert Deadline.after(-1).remaining() == 0
    assert Deadline.after(0).expired


def test_a_part_may_get_less_time_but_never_more() -> None:
    assert Deadline.after(100).at_most(10).remaining() <= 10
    assert Deadline.after(10).at_most(100).remaining() <= 10
