"""A token that the file does not name opens nothing, over HTTP and gRPC, however the file lost it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support.servers.processes import Role, run_tsdb

pytestmark = pytest.mark.timeout(900)  # The start of a process loads or compiles all kernels.


def ask(role: Role, path: str, token: str, body: bytes | None = None) -> int:
    request = urllib.request.Request(f"http://{role.http}{path}", body, {"authorization": f"Bearer {token}"})
    request.add_header("content-type", "text/plain")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def readiness(role: Role) -> str:
    try:
        with urllib.request.urlopen(f"http://{role.http}/-/ready", timeout=30) as answer:
            return str(json.load(answer)["reason"])
    except urllib.error.HTTPError as error:
        with error:
            return str(json.load(error)["reason"])


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


REVOCATIONS: dict[str, Callable[[Path], object]] = {
    "removed": lambda file: file.write_text("kept\n"),
    "malformed": lambda file: file.write_text("kept\nno token\n"),
    "emptied": lambda file: file.write_text(""),
    "deleted": Path.unlink,
    "a folder": make_folder,
}


def test_a_revoked_token_opens_nothing_and_the_process_says_so(tmp_path: Path) -> None:
    file, shown = tmp_path / "tokens", tmp_path / "shown"
    file.write_text("first\nkept\n")
    shown.write_text("first\n")
    arguments = ("--data-dir", str(tmp_path / "data"), "--token-file", str(file))
    with Role(tmp_path, "standalone", *arguments) as role:

        def opens() -> list[bool]:
            series = run_tsdb("coverage", "--address", role.grpc, "--token-file", str(shown), "--timeout", "10s")
            write = ask(role, "/write", "first", b"m value=1")
            return [
                ask(role, "/api/v1/query?query=1", "first") == 200,
                ask(role, "/metrics", "first") == 200,
                write == 204,
                series.returncode == 0,
            ]

        assert opens() == [True] * 4
        for name, revoke in REVOCATIONS.items():
            revoke(file)
            has_kept = file.is_file() and "kept" in file.read_text()
            assert opens() == [False] * 4, name
            assert ask(role, "/api/v1/query?query=1", "kept") == (200 if has_kept else 401), name
            assert readiness(role) == ("" if has_kept else "token_file"), name
            if file.is_dir():
                file.rmdir()
            file.write_text("first\nkept\n")
            assert opens()[:3] == [True] * 3, name
            assert readiness(role) == "", name
        log = role.log_file.read_text()
    assert "authentication failed" in log
    assert "caller=127.0.0.1" in log
    assert "caller=ipv4:127.0.0.1" in log
