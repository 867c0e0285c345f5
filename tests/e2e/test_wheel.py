"""An installed wheel has our types, and kernels: a first start in an empty home compiles nothing."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy
import psutil
import pytest

from support.servers.processes import Role
from tsdb.codec.kernel_cache import LEVELS, runs_here

ROOT = Path(__file__).parents[2]
BUILD_WITHIN_S = 600.0  # Compiling all kernels takes 40 CPU seconds.
# Measured: 2.5 to 3.8, with the bytecode to compile; kernels would take 37 more. CPU time, because a loaded machine
# stretches the 3 s of an idle one.
START_CPU_S_MAX = 10.0
LINE = b'up{job="demo"} 1\n'
PROGRAM = """
import chunker.chunker
import ingest.pipeline
import spark_backfill.jobs.rebuild.job
from tsdb.client import ReadOptions, WriteBatch, connect, connect_async
from tsdb.parallel_consumer import ParallelConsumer

with connect("127.0.0.1:7410") as client:
    batch = WriteBatch()
    batch.add({"__name__": "a"}, 1, 1.0)
    written = client.write(batch)
    answer = client.select("a", 1, 2, agg="sum", step_ms=5, options=ReadOptions(after=written.tokens))
    reveal_type(answer)
    reveal_type(written.tokens)
    for labels, ts_ms, values in answer:
        reveal_type(labels)
        reveal_type(values)
    client.select("a", "now", 2)
    client.select("a", 1, 2, aggregation="sum")


async def main() -> None:
    async with connect_async("127.0.0.1:7410") as other:
        reveal_type(other)
    reveal_type(await connect_async("127.0.0.1:7410"))
"""
REVEALED = [
    "tsdb.client.result.SelectResult",
    "list[tsdb.v1.common_pb2.Token]",
    "dict[str, str]",
    "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.float64]]",
    "tsdb.client.aio.AsyncClient",
    "tsdb.client.aio.AsyncClient",
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel, and beside it what this one has."""
    scratch = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(scratch), str(ROOT)], check=True, capture_output=True, timeout=BUILD_WITHIN_S)
    environment = scratch / "environment"
    venv.create(environment)
    packages = next(environment.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    (packages / "others.pth").write_text(str(Path(numpy.__file__).parents[1]))
    return environment / "bin" / "python"


@pytest.mark.timeout(BUILD_WITHIN_S + 300)  # The first test builds.
def test_mypy_sees_our_types_in_an_installed_wheel(python: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    done = subprocess.run(
        [*check, "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path,  # Outside of the sources, so that mypy finds only the wheel.
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert re.findall(r'Revealed type is "(.*)"', done.stdout) == REVEALED, done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [re.findall(r"\[([a-z-]+)\]$", error) for error in errors] == [["arg-type"], ["call-arg"]], done.stdout


@pytest.mark.timeout(BUILD_WITHIN_S + 300)
def test_a_wheel_has_all_files_of_the_pages(python: Path) -> None:
    package = Path("tsdb/ui")
    installed = next(python.parents[1].glob("lib/python*/site-packages")) / package
    for folder in ("static", "templates"):
        want = sorted(file.name for file in (ROOT / package / folder).iterdir())
        assert sorted(file.name for file in (installed / folder).iterdir()) == want


class WheelRole(Role):
    """A role of the installed wheel, in an empty home."""

    def __init__(self, python: Path, home: Path, *arguments: str) -> None:
        super().__init__(home, *arguments)
        self._command = [str(python), "-P", "-m", "tsdb.cli.main"]
        self._env = wheel_environment(home)


def wheel_environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "TSDB_LOG_FORMAT": "json"}


@pytest.mark.skipif(
    platform.machine() not in LEVELS or not runs_here(LEVELS[platform.machine()]),
    reason="this processor is below the level of the wheel's kernels",
)
@pytest.mark.timeout(BUILD_WITHIN_S + 300)
def test_a_first_start_from_a_wheel_compiles_nothing(python: Path, tmp_path: Path) -> None:
    def client(*arguments: str, stdin: bytes | None = None) -> bytes:
        command = [str(python), "-P", "-m", "tsdb.cli.main", *arguments]
        environment = wheel_environment(tmp_path)
        return subprocess.run(command, input=stdin, env=environment, check=True, stdout=subprocess.PIPE).stdout

    with WheelRole(python, tmp_path, "standalone", "--data-dir", str(tmp_path / "data")) as role:
        spent = psutil.Process(role.process.pid).cpu_times()
        assert spent.user + spent.system < START_CPU_S_MAX
        client("write", "-", "--format", "prom", "--address", role.grpc, stdin=LINE)
        answer = client("query", "--raw", "up", "--address", role.grpc, "--output", "json", "--encoding", "columns")
        assert b'"demo"' in answer
        events = [json.loads(line) for line in role.log_file.read_text().splitlines() if line.startswith("{")]
        assert [event["compiled"] for event in events if event["event"] == "kernels ready"] == [0, 0]
        assert role.terminate() == 0
    assert not list(tmp_path.rglob("*.nbi")), "a process compiled a kernel into the cache of its home"
