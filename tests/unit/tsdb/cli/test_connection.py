"""The server that commands call, and what they say while it does not answer."""

from __future__ import annotations

import inspect

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.cli.coverage import status
from tsdb.cli.options.arguments import Milliseconds
from tsdb.cli.options.connection import DEFAULT_ADDRESS, Connection
from tsdb.client import Client
from tsdb.config.common import ServiceSettings
from tsdb.model.errors import Unavailable


def test_the_default_address_is_that_of_the_servers() -> None:
    assert ServiceSettings.model_fields["grpc"].default == DEFAULT_ADDRESS
    assert inspect.signature(status).parameters["address"].default == DEFAULT_ADDRESS


def test_the_variable_names_another_server(shell: Shell, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_ADDRESS", server.address)
    assert shell.ok("coverage", "--output", "json").json["partitions"]


def test_a_port_where_nothing_listens_is_said_within_a_second_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_s: list[float] = []
    said: list[tuple[float, str]] = []

    client_waits = Client._wait

    def wait(client: Client, seconds: float) -> None:
        waited_s.append(seconds)
        client_waits(client, seconds)

    monkeypatch.setattr(Client, "_wait", wait)
    monkeypatch.setattr("tsdb.cli.options.connection.note", lambda text: said.append((sum(waited_s), text)))
    with Connection("127.0.0.1:1", timeout=Milliseconds(3000)).open() as client, pytest.raises(Unavailable):
        client.coverage()
    [(said_after_s, text)] = said
    assert said_after_s < 1
    assert text.startswith("nothing listens at 127.0.0.1:1: start the server")
    assert text.endswith("; tried again for up to 3s")
