"""Runs `tsdb` commands in this process, seen as a shell sees them."""

from __future__ import annotations

import io
import json
import logging
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import typer.main

from tsdb.cli.main import app

COMMAND = typer.main.get_command(app)  # The click command that `app()` runs.


@dataclass(frozen=True, slots=True)
class Done:
    """A finished command: exit code, stdout, stderr."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        """The JSON on the last line of stdout."""
        return json.loads(self.text.splitlines()[-1])


class Shell:
    """`run` takes the arguments of `tsdb`; `ok` also wants exit code 0."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._monkeypatch = monkeypatch

    def run(self, *arguments: object, stdin: bytes = b"") -> Done:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            COMMAND([str(argument) for argument in arguments], prog_name="tsdb")
            code: object = 0
        except SystemExit as end:
            code = end.code
        finally:
            # A command that configures logs sends them to a stderr that ends with this test.
            root.handlers[:] = handlers
            root.setLevel(level)
        captured = self._capture.readouterr()
        assert isinstance(code, int | None), code
        return Done(code or 0, captured.out, captured.err.decode())

    def ok(self, *arguments: object, stdin: bytes = b"") -> Done:
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, (arguments, done)
        return done
