from __future__ import annotations

import os
from pathlib import Path

import pytest

from tsdb.model.errors import ConfigMismatch, Unauthenticated
from tsdb.ops.auth import Tokens


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


@pytest.mark.parametrize("content", ["", "# nothing\n", "bad token\n", None])
def test_a_file_that_breaks_later_leaves_the_tokens_as_they_are(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "tokens"
    file.write_text("first\n")
    tokens = Tokens(file=file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert allowed(tokens, "Bearer first")


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
