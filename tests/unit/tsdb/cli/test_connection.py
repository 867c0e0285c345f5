"""The server that commands call, and their notice while it is unreachable."""

from __future__ import annotations

import inspect

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.cli.coverage import status
from tsdb.cli.options.arguments import Milliseconds
from tsdb.cli.options.connection import DEFAULT_ADDRESS, UnreachableNotice
from tsdb.client.retry import Attempts
from tsdb.config.common import ServiceSettings
from tsdb.model.errors import TsdbError, Unavailable

REFUSED = Unavailable("nothing listens at 127.0.0.1:1", reason="unreachable")
TIMEOUT_S = 10.0


def notices(capsys: pytest.CaptureFixture[str], errors: list[TsdbError]) -> list[tuple[str, float]]:
    """The notices of a call whose attempts fail at once with these errors, each with its time, after the longest
    waits."""
    now_s, found = 0.0, []
    attempts = Attempts(TIMEOUT_S, monotonic=lambda: now_s, spread=lambda: 0.999)
    notice = UnreachableNotice(Milliseconds(10_000), lambda: now_s)
    for error in errors:
        delay_s = attempts.delay_after(error)
        if delay_s is None:
            break
        notice(error)
        found += [(line, now_s) for line in capsys.readouterr().err.splitlines()]
        now_s += delay_s
    return found


def test_the_default_address_is_that_of_the_servers() -> None:
    assert ServiceSettings.model_fields["grpc"].default == DEFAULT_ADDRESS
    assert inspect.signature(status).parameters["address"].default == DEFAULT_ADDRESS


def test_the_variable_names_another_server(shell: Shell, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_ADDRESS", server.address)
    assert shell.ok("coverage", "--output", "json").json["partitions"]


def test_a_port_without_a_server_is_named_once_and_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    [(line, after_s)] = notices(capsys, [REFUSED] * 100)
    assert line == "nothing listens at 127.0.0.1:1; tried again for up to 10s"
    assert after_s < 1


def test_a_call_without_a_server_ends_with_the_notice_and_the_error(shell: Shell) -> None:
    done = shell.run("coverage", "--address", "127.0.0.1:1", "--timeout", "2s")
    notice, error = done.err.splitlines()
    assert (done.code, notice.endswith("; tried again for up to 2s")) == (1, True)
    assert error.startswith("error: nothing listens at 127.0.0.1:1: start the server")


def test_a_short_restart_and_other_errors_have_no_notice(capsys: pytest.CaptureFixture[str]) -> None:
    behind = Unavailable("partition 0 is not ready", reason="not_ready")
    assert notices(capsys, [REFUSED] * 3) == []
    assert notices(capsys, [behind] * 100) == []
