"""A role that cannot start ends with exit code 1 and names the cause. A running role is not harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.deployments import Deployment, embedded
from support.servers.probes import write_once
from support.servers.processes import run_tsdb

ENDS_WITHIN_S = 60.0
WRITE_WITHIN_S = 10.0
ANY_PORT = "127.0.0.1:0"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with embedded(tmp_path_factory.mktemp("starts")) as running:
        yield running


def refused(*arguments: str) -> str:
    """The output of a standalone process that does not start: exit code 1, without a traceback."""
    done = run_tsdb("standalone", *arguments, timeout_s=ENDS_WITHIN_S)
    text = done.stderr.decode() + done.stdout.decode()
    assert done.returncode == 1, text
    assert "Traceback" not in text
    return text


def data_dir(deployment: Deployment) -> str:
    arguments = deployment.store.arguments
    return arguments[arguments.index("--data-dir") + 1]


def test_a_data_folder_in_use_is_named_with_the_process_that_holds_it(deployment: Deployment) -> None:
    text = refused("--data-dir", data_dir(deployment), "--grpc", ANY_PORT, "--http", ANY_PORT)
    assert f"--data-dir {data_dir(deployment)} is in use by process {deployment.store.process.pid}" in text
    assert write_once(deployment.gateway, WRITE_WITHIN_S).error is None


def test_a_port_in_use_is_named_and_not_waited_for(deployment: Deployment, tmp_path: Path) -> None:
    text = refused("--data-dir", str(tmp_path), "--grpc", deployment.store.grpc, "--http", ANY_PORT)
    assert f"cannot listen on {deployment.store.grpc} for gRPC" in text


def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = refused("--data-dir", str(tmp_path / "file"), "--grpc", ANY_PORT, "--http", ANY_PORT)
    assert f"--data-dir {tmp_path / 'file'} cannot be used: it is not a folder" in text
