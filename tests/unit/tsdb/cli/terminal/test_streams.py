"""Output escapes the characters that its encoding lacks; JSON is the same when it is read back."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tsdb.cli.terminal.streams import prepare_streams


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("text", ["plain", "é", "Größe", "日本", "😀", "\ud800"])
def test_json_in_any_encoding_reads_back_the_same(monkeypatch: pytest.MonkeyPatch, encoding: str, text: str) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    prepare_streams()
    print(json.dumps({text: text}, ensure_ascii=False), flush=True)
    assert json.loads(written.getvalue().decode(encoding)) == {text: text}


def test_a_stream_that_was_closed_takes_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    prepare_streams()
    for stream in (sys.stdout, sys.stderr):
        assert stream.write("é") == 1
        stream.close()
