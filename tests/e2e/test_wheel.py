"""An installed wheel has our types, and the library of kernels: a first start needs no compiler and no cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest

from support.documents import blocks
from support.servers.processes import Role

ROOT = Path(__file__).parents[2]
BUILD_WITHIN_S = 600.0  # Compiling all kernels takes 40 CPU seconds.
# CPU time, because a loaded machine stretches the wall time of an idle one.
START_CPU_S_MAX = 5.0
COMPILERS = ("numba", "llvmlite")
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
    client.select("a", 1.5, 2)
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
    """The interpreter of an environment with the wheel, which also sees the packages of this environment."""
    scratch = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(scratch), str(ROOT)], check=True, capture_output=True, timeout=BUILD_WITHIN_S)
    environment = scratch / "environment"
    venv.create(environment)
    packages = next(environment.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    others = packages / "others"
    others.mkdir()
    for path in Path(numpy.__file__).parents[1].iterdir():
        # The editable install of this checkout would lead to its kernels, and the compilers are not of the product.
        if not path.name.startswith((*COMPILERS, "kafka_tsdb", "__editable__", "_editable")) and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    (packages / "others.pth").write_text("others")
    return environment / "bin" / "python"


@pytest.mark.timeout(BUILD_WITHIN_S + 300)  # The first test builds the wheel.
@pytest.mark.parametrize("install", ["wheel", pytest.param("editable", marks=pytest.mark.soak)])
def test_mypy_sees_our_types_in_an_installed_wheel_and_in_an_editable_install(
    install: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    python = sys.executable if install == "editable" else request.getfixturevalue("python")
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


def test_a_wheel_is_for_every_python_of_one_platform_and_does_not_require_the_compiler(python: Path) -> None:
    (wheel,) = python.parents[2].glob("*.whl")
    assert re.fullmatch(r"kafka_tsdb-[\d.]+-cp311-abi3-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = (files.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert len([name for name in names if name.startswith("tsdb/_kernels/") and name.endswith(".abi3.so")]) == 1
    assert not [name for name in names if name.startswith("kernel_build/")]
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required
    assert not [line for line in required if any(compiler in line for compiler in COMPILERS)]


@pytest.mark.timeout(BUILD_WITHIN_S + 300)
def test_a_first_start_from_a_wheel_needs_no_compiler_and_no_cache(python: Path, tmp_path: Path) -> None:
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
        assert role.terminate() == 0
    assert not (tmp_path / ".cache" / "kafka-tsdb").exists(), "a process built kernels into the cache of its home"
    missing = subprocess.run([str(python), "-P", "-c", "import numba"], capture_output=True, text=True, check=False)
    assert "No module named 'numba'" in missing.stderr


@pytest.mark.timeout(BUILD_WITHIN_S + 300)
def test_a_csv_becomes_the_link_of_a_graph_by_the_commands_of_the_readme(python: Path, tmp_path: Path) -> None:
    (block,) = [one for one in blocks(ROOT / "README.md") if "rooms.csv" in one.text]
    with WheelRole(python, tmp_path, "standalone", "--data-dir", str(tmp_path / "data")) as role:
        # The address of the test's server in place of the default, and the wheel in place of the checkout.
        _, *commands = [line for line in block.text.splitlines() if "tsdb standalone" not in line]
        script = "\n".join(["set -eu", "mkdir -p build", *commands])
        script = script.replace(".venv/bin/tsdb", f"{python} -P -m tsdb.cli.main")
        places = {"TSDB_ADDRESS": role.grpc, "TSDB_PAGE": role.http}
        environment = wheel_environment(tmp_path) | places
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "build/rooms.csv: times time, metrics temperature, labels room" in done.stderr
        assert '{room="kitchen"}   21.5' in done.stdout
        link = done.stdout.splitlines()[-1]
        assert link.startswith(f"http://{role.http}/?v=1&range=1h&p0.q=temperature")
        with urllib.request.urlopen(link, timeout=60) as page:
            assert b"<textarea" in page.read()
    help_text = subprocess.run([str(python), "-P", "-m", "tsdb.cli.main", "demo", "--help"], capture_output=True)
    assert b"--open" in help_text.stdout


@pytest.mark.timeout(BUILD_WITHIN_S + 300)
def test_an_old_csv_is_imported_beside_a_running_standalone_and_read_back(python: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "old.csv").write_text("time,room,temperature\n2020-01-01T00:00Z,kitchen,21.5\n2020-01-01,hall,19\n")
    environment = wheel_environment(tmp_path)

    def client(*arguments: str) -> Any:
        command = [str(python), "-P", "-m", "tsdb.cli.main", *arguments, "--output", "json"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    with WheelRole(python, tmp_path, "standalone", "--data-dir", str(data)) as role:
        query = ("query", "avg by (room) (temperature)", "--at", "2020-01-01T00:01Z", "--address", role.grpc)
        assert client(*query)["series"] == []
        done = client("import", "old.csv", "--data-dir", str(data))
        assert (done["ok"], done["samples"], done["loaded"]) == (True, 2, True)
        found = {one["labels"]["room"]: one["values"] for one in client(*query)["series"]}
        assert found == {"kitchen": [21.5], "hall": [19.0]}
