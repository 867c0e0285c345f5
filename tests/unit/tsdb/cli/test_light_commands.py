"""A command imports only the libraries that it uses, and starts within a bound of CPU time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import defaultdict

import pytest

from support.fakes.fake_reader import FakeServer
from tsdb.cli.commands import COMMANDS, Row
from tsdb.cli.options.groups import first_sentence
from tsdb.cli.root import LoadedCommands
from tsdb.model.labels import canonical_labels

HEAVY = (
    *(
        "aiohttp",
        "anyio",
        "cassandra",
        "confluent_kafka",
        "grpc",
        "llvmlite",
        "numba",
        "numpy",
        "pandas",
        "prometheus_client",
    ),
    *(
        "kafka",
        "psutil",
        "pyarrow",
        "pydantic",
        "pydantic_settings",
        "pyspark",
        "rich",
        "sqlite3",
        "starlette",
        "structlog",
        "uvicorn",
    ),
)
# Twice the time on an idle core: the tests share two cores with other processes.
HELP_CPU_S = 0.2
QUERY_CPU_S = 0.8
RUNS = 5

CLIENT = {"grpc", "numpy"}
SETTINGS = {"pydantic", "pydantic_settings"}
LOG = {*SETTINGS, "numpy", "structlog"}
# Command line -> modules of HEAVY that it may load. A server's address is appended where the line ends with --address.
ALLOWED: dict[str, set[str]] = {
    "--help": set(),
    "--version": set(),
    "nonsense": set(),
    "query up --start 0 --end 100000 --address": {*CLIENT, "rich"},
    "query up --start 0 --end 100000 --output json --address": CLIENT,
    "query up --at 60000 --address": {*CLIENT, "rich"},
    "query up --raw --start 0 --end 100000 --address": {*CLIENT, "rich"},
    "query up --raw --start 0 --end 100000 --encoding columns --output json --address": CLIENT,
    "queries --output json --address": CLIENT,
    "series --output json --address": CLIENT,
    "labels --output json --address": CLIENT,
    "cardinality --output json --address": CLIENT,
    "coverage --output json --address": CLIENT,
    "status --output json --address": CLIENT,
    "watch --help": CLIENT,
    "write --help": {*CLIENT, "prometheus_client"},
    "agent --help": {*CLIENT, "prometheus_client", "psutil", "pydantic", "structlog"},
    "plan --help": set(),
    "topics --help": LOG,
    "kafka --help": LOG,
    "log --help": LOG,
    "chunks --help": LOG,
    "dlq --help": LOG,
    "history --help": SETTINGS,
    "holes --help": SETTINGS,
    "spark --help": SETTINGS,
    "config --help": SETTINGS,
    "store --help": {*SETTINGS, "prometheus_client", "structlog"},
}
ONE_PROCESS: defaultdict[frozenset[str], list[str]] = defaultdict(list)
"""Modules -> the command lines that may load them: what all of a process have loaded each may load alone."""
for _line, _modules in ALLOWED.items():
    ONE_PROCESS[frozenset(_modules)].append(_line)

RUN = f"""
import json, sys
from tsdb.cli.main import main
ends = []
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        ends.append((end.code or 0, [name for name in {HEAVY!r} if name in sys.modules]))
print(json.dumps(ends), file=sys.stderr)
"""


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    server.samples[canonical_labels({"__name__": "up", "job": "a"})] = [(1000 * at, float(at)) for at in range(1, 60)]
    return server


def arguments(line: str, server: FakeServer) -> list[str]:
    words = line.split()
    return [*words, server.address] if words[-1] == "--address" else words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allowed", "lines"), ONE_PROCESS.items(), ids=[",".join(sorted(modules)) or "none" for modules in ONE_PROCESS]
)
def test_a_command_loads_only_libraries_that_it_uses(
    allowed: frozenset[str], lines: list[str], server: FakeServer
) -> None:
    words = json.dumps([arguments(line, server) for line in lines])
    done = subprocess.run([sys.executable, "-c", RUN, words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for line, (code, loaded) in zip(lines, json.loads(done.stderr.splitlines()[-1]), strict=True):
        assert code == (2 if line == "nonsense" else 0), f"{line}: {done.stderr}"
        assert allowed.issuperset(loaded), f"{line} also loaded: {', '.join(sorted(set(loaded) - allowed))}"


def test_numpy_starts_no_thread() -> None:
    code = "import os, tsdb.cli.main, numpy; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_the_table_has_the_first_sentence_of_the_help(row: Row) -> None:
    assert row.text == first_sentence(LoadedCommands(COMMANDS)[row.name].help)


@pytest.mark.soak  # CPU time of ten processes.
@pytest.mark.parametrize(
    ("line", "bound_s"), [("--help", HELP_CPU_S), ("query up --start 0 --end 100000 --address", QUERY_CPU_S)]
)
def test_a_command_starts_within_its_cpu_time(line: str, bound_s: float, server: FakeServer) -> None:
    best_s = min(_cpu_seconds(arguments(line, server)) for _ in range(RUNS))
    assert best_s < bound_s


def _cpu_seconds(words: list[str]) -> float:
    """CPU time of one `tsdb` process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "tsdb.cli.main", *words], check=True, capture_output=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
