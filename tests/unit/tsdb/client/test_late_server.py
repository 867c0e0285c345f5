"""A client that starts before its server is served as soon as the server listens, with our environment of gRPC.

In that environment a connection attempt goes on only while a call waits for it, and fails after 20 s without one.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from stack.ports import Ports
from support.fakes.fake_reader import FakeServer

SOON_S = 15.0  # Less than the 20 s of gRPC.
CODE = """
import sys
from tsdb.ops.grpc.environment import set_grpc_environment
set_grpc_environment()
from tsdb.client import Unavailable, connect
with connect(sys.argv[1]) as client:
    try:
        client.coverage(timeout_s=0.5)
    except Unavailable as error:
        print(error.reason, flush=True)
    print(len(client.coverage(timeout_s=float(sys.argv[2]))), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_a_client_is_served_soon_after_its_server_begins(attempt: int) -> None:
    with Ports(1) as ports:
        (port,) = ports.numbers
        command = [sys.executable, "-c", CODE, f"127.0.0.1:{port}", str(SOON_S)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "unreachable\n"
            with FakeServer(port=port):
                assert client.stdout.readline() == "1\n"
