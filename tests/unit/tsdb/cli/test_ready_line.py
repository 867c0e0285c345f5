"""A role prints once that it is ready, with addresses for writes and reads, and commands that work as they are."""

from __future__ import annotations

import shlex
import threading
import time
from pathlib import Path

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from support.servers.logs import wait_until
from tsdb.config import ROLES, load
from tsdb.model.labels import canonical_labels
from tsdb.ops.health import Readiness
from tsdb.roles.ready_line import ReadyLine, ReadyWatch, ready_line
from tsdb.v1 import reader_pb2

GRPC, HTTP = 7410, 7411


def line(role: str, grpc_port: int | None = GRPC, **settings: object) -> ReadyLine:
    places = {"log": "kafka://h:9092", "history": "sqlite:///h.sqlite", "stores": "127.0.0.1:1"}
    given = {name: value for name, value in {**places, **settings}.items() if name in ROLES[role].model_fields}
    return ready_line(role, load(ROLES[role], given), grpc_port, HTTP)


@pytest.mark.parametrize(
    ("role", "grpc_port", "words"),
    [
        ("standalone", GRPC, "standalone; write to 127.0.0.1:7410, read from 127.0.0.1:7410, pages, probes"),
        ("gateway", GRPC, "gateway; write to 127.0.0.1:7410, probes"),
        ("store", GRPC, "store; read from 127.0.0.1:7410, probes"),
        ("querier", GRPC, "querier; read from 127.0.0.1:7410, pages, probes"),
        (
            "chunker",
            None,
            "chunker; probes and metrics at http://127.0.0.1:7411; next: tsdb chunks status --log kafka://h",
        ),
        ("loader", None, "next: tsdb history check --log kafka://h:9092 --history sqlite:///h.sqlite"),
    ],
)
def test_each_role_names_what_it_is_for(role: str, grpc_port: int | None, words: str) -> None:
    text = line(role, grpc_port).text()
    assert text.startswith(f"ready: {role}; ")
    assert words in text
    assert "\n" not in text


def test_the_commands_of_standalone_work_as_they_are(shell: Shell, server: FakeServer) -> None:
    port = int(server.address.rpartition(":")[2])
    write, *reads = line("standalone", port).next
    echo, _, command = write.partition(" | ")
    shell.ok(*shlex.split(command)[1:], stdin=shlex.split(echo)[1].encode())
    assert list(server.samples) == [canonical_labels({"__name__": "up", "job": "demo"})]
    query, status = (shell.ok(*shlex.split(read)[1:]) for read in reads)
    assert 'up{job="demo"}' in query.text
    assert status.text.startswith("partition")


def test_the_commands_of_a_store_need_no_promql(shell: Shell, server: FakeServer) -> None:
    server.samples[canonical_labels({"__name__": "up", "job": "demo"})] = [(time.time_ns() // 1_000_000, 1.0)]
    query, _ = line("store", int(server.address.rpartition(":")[2])).next
    assert 'up{job="demo"}' in shell.ok(*shlex.split(query)[1:]).text
    assert server.received(reader_pb2.QueryRequest) == []


def test_the_commands_of_chunker_and_loader_work_as_they_are(shell: Shell, tmp_path: Path) -> None:
    places = {"log": f"sqlite:///{tmp_path}/log.db", "history": f"sqlite:///{tmp_path}/history.db"}
    shell.ok("topics", "create", "--log", places["log"], "--partitions", 1)
    shell.ok("history", "create", "--log", places["log"], "--history", places["history"])
    for role in ("chunker", "loader"):
        (command,) = line(role, None, **places).next
        shell.ok(*shlex.split(command)[1:])


def test_credentials_are_part_of_the_commands(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    secured = line("store", tls_cert_file="c", tls_key_file="k", tls_client_ca_file="a", token_file=tmp_path / "token")
    assert secured.http == "https://127.0.0.1:7411"
    wanted = "--tls-ca CA.pem --tls-cert CERT.pem --tls-key KEY.pem --token-file FILE"
    assert all(command.endswith(wanted) for command in secured.next)
    assert "s3cret" not in secured.text()


@pytest.mark.parametrize(("listen", "shown"), [("0.0.0.0:0", "127.0.0.1:7410"), ("[::]:0", "[::1]:7410")])
def test_an_address_of_all_interfaces_is_shown_as_one_to_call(listen: str, shown: str) -> None:
    assert line("store", grpc=listen).read == shown


def test_json_logs_have_it_as_an_event(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level("INFO"):
        line("gateway").emit(json=True)
    [record] = caplog.records
    event = record.msg
    assert isinstance(event, dict)
    assert (event["event"], event["role"], event["write"], event["read"]) == ("ready", "gateway", "127.0.0.1:7410", "")
    assert capsys.readouterr().out == ""


def test_it_is_said_once_and_only_when_ready() -> None:
    starting, ready = Readiness("starting"), Readiness()
    states = [starting, starting, ready, starting, ready, ready]
    said = threading.Semaphore(0)
    watch = ReadyWatch(lambda: states.pop(0), said.release, settle_s=0.01)
    watch.start()
    assert said.acquire(timeout=60)
    watch.close()
    assert watch.join(60.0)
    assert not said.acquire(blocking=False)
    assert states == []


def test_a_process_that_ends_before_says_nothing() -> None:
    said: list[str] = []
    watch = ReadyWatch(lambda: Readiness("starting"), lambda: said.append("ready"))
    watch.start()
    watch.close()
    wait_until(lambda: watch.join(0.1))
    assert said == []
