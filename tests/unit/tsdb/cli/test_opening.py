"""A role that cannot be opened leaves its log to the next try."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.cli import Shell
from tsdb.config import GatewaySettings
from tsdb.model.errors import Unavailable
from tsdb.roles.gateway import open_gateway


def test_a_gateway_whose_port_is_in_use_gives_its_log_back(shell: Shell, tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/log.db"
    shell.ok("topics", "create", "--log", log, "--partitions", 1, "--replication", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"log": log, "grpc": f"127.0.0.1:{taken.getsockname()[1]}"}
        settings = GatewaySettings.model_validate(given)
        for _ in range(2):
            with pytest.raises(Unavailable) as refused:
                open_gateway(settings)
            assert refused.value.reason == "bind"
