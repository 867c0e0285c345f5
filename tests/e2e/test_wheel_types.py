"""mypy checks a program against the types of an installed wheel: correct code passes, wrong code is reported."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy

ROOT = Path(__file__).parents[2]
PROGRAM = """
import chunker.chunker
import ingest.pipeline
import spark_backfill.rebuild.job
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


def installed(scratch: Path) -> Path:
    """The interpreter of an environment that has the wheel, and beside it what this one has."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(scratch), str(ROOT)], check=True, capture_output=True, timeout=200)
    environment = scratch / "environment"
    venv.create(environment)
    packages = next(environment.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    (packages / "others.pth").write_text(str(Path(numpy.__file__).parents[1]))
    return environment / "bin" / "python"


def test_mypy_sees_our_types_in_an_installed_wheel(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed(tmp_path))]
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
