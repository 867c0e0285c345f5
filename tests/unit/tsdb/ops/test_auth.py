from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.counters import sample
from tsdb.model.errors import ConfigMismatch, Unauthenticated
from tsdb.ops.auth import LOG_EVERY_S, LOG_LINES_MAX, FailureLog, Tokens


def allowed(tokens: Tokens, header: str | bytes | None) -> bool:
    try:
        tokens.check(header, server="http")
    except Unauthenticated:
        return False
    return True


@pytest.mark.parametrize(
    ("header", "ok"),
    [
        ("Bearer good", True),
        ("bearer  good ", True),
        (b"Bearer good", True),
        ("Bearer goo", False),
        ("Bearer goodd", False),
        ("Bearer GOOD", False),
        ("Basic good", False),
        ("good", False),
        ("Bearer", False),
        ("Bearer \udcff", False),
        (b"\xff\xfe", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_bearer_header_with_a_valid_token_passes(header: str | bytes | None, ok: bool) -> None:
    assert allowed(Tokens(text="good"), header) is ok


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# rotated monthly\nfirst\n\nsecond\n")
    tokens = Tokens(file=file)
    assert [allowed(tokens, f"Bearer {token}") for token in ("first", "second", "third")] == [True, True, False]
    replacement = tmp_path / "new"
    replacement.write_text("third\n")
    os.replace(replacement, file)
    assert [allowed(tokens, f"Bearer {token}") for token in ("first", "second", "third")] == [False, False, True]


def _replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _replace_by_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("absent")


REVOCATIONS: dict[str, Callable[[Path], object]] = {
    "line removed": lambda file: file.write_text("kept\n"),
    "line commented out": lambda file: file.write_text("kept\n# first\n"),
    "another line malformed": lambda file: file.write_text("kept\nbad token\n"),
    "its line malformed": lambda file: file.write_text("kept\nfirst first\n"),
    "emptied": lambda file: file.write_text(""),
    "only comments": lambda file: file.write_text("# nothing\n"),
    "deleted": Path.unlink,
    "no UTF-8": lambda file: file.write_bytes(b"\xff\xfe"),
    "a folder": _replace_by_folder,
    "a broken link": _replace_by_link,
}


@pytest.mark.parametrize("revoke", REVOCATIONS.values(), ids=REVOCATIONS)
def test_a_token_is_valid_only_while_the_file_has_it(tmp_path: Path, revoke: Callable[[Path], object]) -> None:
    file = tmp_path / "tokens"
    file.write_text("first\nkept\n")
    tokens = Tokens(file=file)
    assert allowed(tokens, "Bearer first")
    revoke(file)
    has_kept = file.is_file() and b"kept" in file.read_bytes()
    assert [allowed(tokens, f"Bearer {token}") for token in ("first", "kept")] == [False, has_kept]
    assert bool(tokens.problem()) is not has_kept


@pytest.mark.parametrize("content", ["", "kept\nbad token\n"])
def test_an_invalid_file_is_counted_logged_and_mended_without_a_restart(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    file.write_text("first\n")
    tokens = Tokens(file=file)
    before = sample("tsdb_auth_token_file_failures_total")
    file.write_text(content)
    assert [allowed(tokens, "Bearer first") for _ in range(3)] == [False] * 3
    assert sample("tsdb_auth_token_file_failures_total") == before + 1
    assert sample("tsdb_auth_token_file_valid") == 0
    assert sum("file is not valid" in record.getMessage() for record in caplog.records) == 1
    file.write_text("first\n# mended\n")
    assert allowed(tokens, "Bearer first")
    assert sample("tsdb_auth_token_file_valid") == 1


def test_a_fixed_token_stays_valid_while_the_file_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("b\n")
    tokens = Tokens(text="a", file=file)
    file.unlink()
    assert [allowed(tokens, f"Bearer {token}") for token in "ab"] == [True, False]
    assert tokens.problem() == ""


def test_refused_callers_are_logged_once_a_minute_each_and_in_bounded_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    failures = FailureLog(lambda: now[0])
    error = Unauthenticated("no", reason="token_wrong")
    for _ in range(3):
        for host in range(LOG_LINES_MAX + 5):
            failures.add(error, "http", f"10.0.0.{host}:{host}")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LOG_LINES_MAX
    assert "'caller': '10.0.0.0'" in lines[0]
    now[0] = LOG_EVERY_S
    failures.add(error, "grpc", "ipv4:10.0.0.99:1")
    held_back = 3 * (LOG_LINES_MAX + 5) - LOG_LINES_MAX
    assert f"'held_back': {held_back}" in caplog.records[-1].getMessage()
    assert "'caller': 'ipv4:10.0.0.99'" in caplog.records[-1].getMessage()


def test_setting_and_file_add_up(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("b")
    tokens = Tokens(text="a", file=file)
    assert allowed(tokens, "Bearer a")
    assert allowed(tokens, "Bearer b")


@pytest.mark.parametrize("text", ["", "  ", "good, b\u00e4d", 'quo"te'])
def test_no_token_or_an_illegal_one_refuses_the_start_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigMismatch) as caught:
        Tokens(text=text)
    assert caught.value.reason == "token"
    assert not any(part and part in caught.value.message for part in text.replace(",", " ").split())


def test_a_missing_file_refuses_the_start_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match="absent"):
        Tokens(file=tmp_path / "absent")
