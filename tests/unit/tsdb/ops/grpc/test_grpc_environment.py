"""gRPC's environment is set before gRPC is loaded, in every process of ours, and what a user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tsdb.ops.grpc.environment import EXPERIMENTS, set_grpc_environment

# Records, as gRPC is imported, what it finds.
WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print("grpc finds", os.environ.get("GRPC_EXPERIMENTS"))
sys.meta_path.insert(0, Watch())
import {module}
"""


@pytest.mark.parametrize("module", ["tsdb.cli.main", "bench.store_process", "bench.store.read"])
@pytest.mark.parametrize("own", [None, "promise"])
def test_it_is_set_before_grpc_is_loaded(module: str, own: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    environment |= {"GRPC_EXPERIMENTS": own} if own else {}
    code = WATCH.format(module=module) + "import grpc\n"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines()[0] == f"grpc finds {own or EXPERIMENTS}"


def test_only_what_is_missing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", "debug")
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    set_grpc_environment()
    assert (os.environ["GRPC_VERBOSITY"], os.environ["GRPC_EXPERIMENTS"]) == ("debug", EXPERIMENTS)
