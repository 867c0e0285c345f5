"""Each bad input has one line that names it, an exit code, and loses nothing: roles still take writes and answer reads.

The rows are in support.bad_inputs: commands, files, settings, messages and bytes to the ports, calls of the client. A
gateway and a store run as separate processes; commands run in this process, and some once more as a shell does.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import pytest

from support.bad_inputs.calls import BYTES, CALLS
from support.bad_inputs.commands import COMMANDS, FILES, FOLDER
from support.bad_inputs.commands import PROCESSES as COMMAND_PROCESSES
from support.bad_inputs.files import BAD_FILES
from support.bad_inputs.rows import GATEWAY, STORE, BadFile, Bytes, Call, Command, Use
from support.bad_inputs.settings import PROCESSES as SETTING_PROCESSES
from support.bad_inputs.settings import SECRET, SETTINGS, TOML
from support.bad_inputs.uses import USES
from support.cli import Shell
from support.data.fuzz import send
from support.servers.logs import wait_until
from support.servers.probes import healthy
from support.servers.processes import TSDB, Role, tsdb_ok
from tsdb.client import Client, ReadOptions, WriteBatch, connect

ROWS_AT_LEAST = 200
WITHIN_S = 60.0
PROCESSES = (*COMMAND_PROCESSES, *SETTING_PROCESSES)
VARIABLES = ("ADDRESS", "TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY", "LOG", "HISTORY", "CONFIG")


def numbered(rows: Sequence[object]) -> list[str]:
    """Names of tests, equal in every process. Digits are left out, because some rows contain the current time."""
    return [f"{number} {re.sub('[0-9]+', '#', str(row))}" for number, row in enumerate(rows)]


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway and a store over one embedded log, clients of both, and a folder with the files of the rows."""

    gateway: Role
    store: Role
    writer: Client
    reader: Client
    folder: Path

    @property
    def places(self) -> Mapping[str, str]:
        """The addresses for the placeholders in the rows."""
        return {
            GATEWAY: self.gateway.grpc,
            f"{GATEWAY}-http": self.gateway.http,
            STORE: self.store.grpc,
            f"{STORE}-http": self.store.http,
        }

    def serves(self) -> None:
        """Check that a write is accepted and read back in full."""
        now_ms = time.time_ns() // 1_000_000
        batch = WriteBatch()
        batch.add({"__name__": "after", "job": "bad_inputs"}, now_ms, 1.5)
        written = self.writer.write(batch)
        found = self.reader.select("after", now_ms, now_ms + 1, options=ReadOptions(after=written.tokens))
        assert (found.ts_ms.tolist(), found.values.tolist()) == ([now_ms], [1.5])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("bad-inputs")
    for name, content in (FILES | TOML).items():
        (folder / name).write_bytes(content)
    (folder / FOLDER).mkdir()
    log = ("--log", f"sqlite:///{folder}/log.db")
    tsdb_ok("topics", "create", *log, "--partitions", "2")
    with ExitStack() as stack:
        gateway, store = (Role(folder, role, *log) for role in ("gateway", "store"))
        for role in (gateway, store):
            stack.push(role)
            role.start(ready=False)
        gateway.wait_ready()
        store.wait_ready()
        writer, reader = (stack.enter_context(connect(role.grpc, timeout_s=WITHIN_S)) for role in (gateway, store))
        yield Stage(gateway, store, writer, reader, folder)
        for role in (gateway, store):
            assert role.process.poll() is None
            assert healthy(role)
            assert "Traceback" not in role.log_file.read_text()
            assert role.terminate() == 0


@pytest.fixture
def serves_after(stage: Stage) -> Iterator[None]:
    yield
    stage.serves()


@pytest.fixture
def shell(stage: Stage, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in VARIABLES:
        monkeypatch.delenv(f"TSDB_{name}", raising=False)
    monkeypatch.chdir(stage.folder)
    return Shell(capsysbinary, monkeypatch)


def as_is(message: bytes) -> bytes:
    """A message that is bytes already."""
    return message


def one_line(err: str, words: str) -> None:
    """Assert that the output is one line `error: ...` with these words, and below it the place in an expression."""
    line, *below = err.splitlines()
    assert line.startswith("error: ")
    assert not below or ("parse error: " in line and [text.strip() for text in below[1:]] == ["^"]), err
    assert words in line, line
    assert SECRET not in line


def test_there_are_rows_enough_and_no_two_are_the_same() -> None:
    rows = [*COMMANDS, *SETTINGS, *BAD_FILES, *CALLS, *BYTES, *USES]
    inputs = {repr(row) for row in rows}
    assert len(inputs) == len(rows) >= ROWS_AT_LEAST
    print(f"{len(rows)} rows")


@pytest.mark.parametrize("row", COMMANDS, ids=numbered(COMMANDS))
def test_a_bad_command_is_one_line(stage: Stage, shell: Shell, monkeypatch: pytest.MonkeyPatch, row: Command) -> None:
    refused(shell, monkeypatch, row, stage.places)


@pytest.mark.parametrize("row", SETTINGS, ids=numbered(SETTINGS))
def test_a_bad_setting_is_one_line(stage: Stage, shell: Shell, monkeypatch: pytest.MonkeyPatch, row: Command) -> None:
    refused(shell, monkeypatch, row, stage.places)


def refused(shell: Shell, monkeypatch: pytest.MonkeyPatch, row: Command, places: Mapping[str, str]) -> None:
    for name, value in row.env.items():
        monkeypatch.setenv(name, value)
    done = shell.run(*row.arguments(places))
    assert (done.code, done.out) == (row.code, b""), done
    one_line(done.err, row.words)
    assert ("(see: tsdb" in done.err) == (row.code == 2)


@pytest.mark.usefixtures("serves_after")
@pytest.mark.parametrize("row", BAD_FILES, ids=numbered(BAD_FILES))
def test_a_bad_file_is_one_line_and_nothing_of_it_is_written(stage: Stage, shell: Shell, row: BadFile) -> None:
    (stage.folder / row.name).write_bytes(row.content)
    done = shell.run("write", row.name, "--address", stage.gateway.grpc, "--output", "json")
    assert done.code == 1, done
    if row.refused:
        assert (done.json["samples"], done.json["refused"]) == (0, 1)
        [line] = done.err.splitlines()
        assert line.startswith("refused: ")
        assert row.words in line
    else:
        assert done.out == b""
        one_line(done.err, row.words)


@pytest.mark.usefixtures("serves_after")
@pytest.mark.parametrize("row", CALLS, ids=numbered(CALLS))
def test_a_bad_message_is_refused_in_words(stage: Stage, row: Call) -> None:
    role = stage.gateway if row.method.startswith("Ingest") else stage.store
    with grpc.insecure_channel(role.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream(f"/tsdb.v1.{row.method}", as_is, as_is)(row.request, timeout=WITHIN_S))
    error = caught.value
    assert isinstance(error, grpc.Call)
    assert error.code() is row.code
    assert row.words in (error.details() or "")


@pytest.mark.usefixtures("serves_after")
@pytest.mark.parametrize("row", BYTES, ids=numbered(BYTES))
def test_bytes_of_no_protocol_end_their_own_connection_alone(stage: Stage, row: Bytes) -> None:
    address = stage.store.http if row.port == "http" else stage.store.grpc
    answer = send(int(address.rpartition(":")[2]), row.sent)
    assert row.answer in answer.partition(b"\r\n")[0]
    assert healthy(stage.store)


@pytest.mark.usefixtures("serves_after")
@pytest.mark.parametrize("row", USES, ids=numbered(USES))
def test_a_bad_use_of_the_client_raises_its_error(stage: Stage, row: Use) -> None:
    with pytest.raises(row.error) as caught:
        row.use(stage.reader)
    assert row.words in caught.value.message


@pytest.mark.parametrize(
    "row",
    [row if number % 2 == 0 else pytest.param(row, marks=pytest.mark.soak) for number, row in enumerate(PROCESSES)],
    ids=numbered(PROCESSES),
)
def test_a_shell_sees_the_same_line_and_code(stage: Stage, row: Command) -> None:
    env = {name: value for name, value in os.environ.items() if name.removeprefix("TSDB_") not in VARIABLES}
    command = [*TSDB, *row.arguments(stage.places)]
    done = subprocess.run(
        command, cwd=stage.folder, env=env | dict(row.env), capture_output=True, timeout=WITHIN_S, check=False
    )
    assert (done.returncode, done.stdout) == (row.code, b"")
    one_line(done.stderr.decode(), row.words)


@pytest.mark.usefixtures("serves_after")
def test_a_port_in_use_ends_a_role_with_its_name(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*TSDB, "store", "--log", "sqlite:///log.db", "--grpc", "127.0.0.1:0", "--http", address]
        done = subprocess.run(command, cwd=stage.folder, capture_output=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 1
    assert address in done.stderr.decode().splitlines()[-1]


def ready_lines(log: Path) -> list[str]:
    """The ready lines in the log of a role."""
    return [text for text in log.read_text().splitlines() if text.startswith("ready: ")]


def has_ready_line(log: Path) -> bool:
    """Whether the ready line was printed."""
    return bool(ready_lines(log))


def test_the_last_line_of_a_start_is_the_ready_line(tmp_path: Path) -> None:
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data")) as role:
        wait_until(partial(has_ready_line, role.log_file))
        assert role.log_file.read_text().splitlines()[-1].startswith("ready: standalone; ")


def test_the_ready_line_says_where_and_what_to_type(stage: Stage) -> None:
    for role, line in ((stage.gateway, "write to"), (stage.store, "read from")):
        wait_until(partial(has_ready_line, role.log_file))
        [ready] = ready_lines(role.log_file)
        assert f"{line} {role.grpc}, probes and metrics at http://{role.http}; next: " in ready
