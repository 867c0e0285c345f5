"""Every command of README.md and docs/run.md works as printed: the blocks of a section run in one shell, from the top.

CI runs the blocks that contain only `make`; this test checks that their targets exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from support.documents import Block, blocks, shell_script

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "run.md")
PORTS = (7410, 7411, 7420, 7421, 7430, 7431, 7441, 7451, 7460, 7461)
WITHIN_S = 600.0  # Six roles, Kafka and Cassandra start beside other tests.
MAKE = re.compile(r"^make ([a-z-]+)$")


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in ("sh", "python")]


def only_make(block: Block) -> bool:
    return all(MAKE.match(line) for line in block.text.splitlines())


def runnable_sections() -> list[list[Block]]:
    kept = [block for block in all_blocks() if not only_make(block)]
    return [list(section) for _, section in groupby(kept, key=lambda block: block.section)]


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {found[1] for block in all_blocks() for line in block.text.splitlines() if (found := MAKE.match(line))}
    assert used
    assert used <= targets


@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.parametrize("section", runnable_sections(), ids=lambda section: section[0].section)
def test_a_section_runs_as_printed(section: list[Block], tmp_path: Path) -> None:
    assert [port for port in PORTS if taken(port)] == [], "the README's ports are in use"
    assert json.loads(stack("status"))["pids"] == [], "a stack of somebody's is up: `make stack-down` ends it"
    shutil.rmtree(ROOT / "build" / "readme-data", ignore_errors=True)
    output = tmp_path / "output"
    with output.open("wb") as sink, shell(shell_script(section), sink) as running:
        code = running.wait(WITHIN_S)
    assert code == 0, output.read_text(errors="replace")[-6000:]


@contextlib.contextmanager
def shell(script: str, sink: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run bash in the project's root. Its background processes end with it."""
    running = subprocess.Popen(
        ["bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=sink,  # type: ignore[call-overload]  # a binary file
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        stack("down")


def stack(verb: str) -> bytes:
    """Runs `python -m stack` and returns its JSON."""
    command = [sys.executable, "-m", "stack", verb]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=WITHIN_S).stdout


def taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
