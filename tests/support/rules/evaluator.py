"""The process of a program that evaluates rules."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STOPS_WITHIN_S = 60.0


@contextmanager
def evaluator(command: Sequence[str], output: BinaryIO, log: Path) -> Iterator[None]:
    """The program runs within the block and ends without an error after it. output: the output of the program, open for
    `log`.
    """
    process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
        process.terminate()
        assert process.wait(STOPS_WITHIN_S) == 0, log.read_text()[-4000:]
    except BaseException as error:
        error.add_note(log.read_text()[-4000:])
        raise
    finally:
        process.kill()
        process.wait()
