"""A server without a token stays on its machine, unless the settings say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from tsdb.config import GatewaySettings
from tsdb.config.types import host_port
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.grpc.health import Health
from tsdb.roles.servers import grpc_server, server_tokens


def settings(**values: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"log": "kafka://broker:9092", **values})


@pytest.mark.parametrize("listen", ["0.0.0.0:7411", "[::]:7411", "10.0.0.7:7411", "gateway:7411"])
def test_an_address_beyond_the_machine_needs_a_token(listen: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("s3cret\n")
    with pytest.raises(ConfigMismatch, match="set token_file, listen on") as caught:
        server_tokens(settings(), host_port(listen))
    assert caught.value.reason == "insecure_listen"
    assert server_tokens(settings(token_file=file), host_port(listen)) is not None
    assert server_tokens(settings(token=SecretStr("s3cret")), host_port(listen)) is not None


def test_loopback_and_a_network_that_keeps_others_out_need_none() -> None:
    assert server_tokens(settings(), host_port("127.0.0.1:7411")) is None
    assert server_tokens(settings(insecure_listen=True), host_port("0.0.0.0:7411")) is None


def test_a_grpc_server_is_refused_before_it_is_bound() -> None:
    with pytest.raises(ConfigMismatch, match=r"0\.0\.0\.0:0 would listen"):
        grpc_server(settings(grpc="0.0.0.0:0"), [], Health())
