"""A querier process with a shadow that a test makes lie: its own answers stay right, and `tsdb shadow diff` prints both
sides. The own address as a shadow ends the start by name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.fakes.lying_reader import LyingReader, with_wrong_value
from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb, tsdb_json

WITHIN_S = 60.0
SAMPLES = 50

pytestmark = pytest.mark.timeout(600)  # Several starts of a process, each with its kernels to load on a busy machine.


@dataclass(frozen=True)
class System:
    """A standalone process with samples that are some minutes old; its log and stores are those of queriers."""

    role: Role
    log: tuple[str, ...]
    start_ms: int

    def read(self, querier: Role) -> object:
        """The samples, through a querier, by gRPC and by PromQL over HTTP."""
        span = ("--start", str(self.start_ms), "--end", str(self.start_ms + 1000 * SAMPLES))
        raw = tsdb_json("query", "--raw", "up", "--address", querier.grpc, *span)["series"]
        return raw, tsdb_json("query", "sum(up)", "--address", querier.grpc, *span, "--step", "1s")["series"]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("shadow")
    start_ms = time.time_ns() // 10**9 * 1000 - 600_000
    rows = [
        {"labels": {"__name__": "up", "job": "j"}, "ts_ms": start_ms + 1000 * n, "value": n + 0.5}
        for n in range(SAMPLES)
    ]
    with Role(folder, "standalone", "--data-dir", str(folder / "data")) as role:
        text = "\n".join(map(json.dumps, rows)).encode()
        assert run_tsdb("write", "-", "--format", "jsonl", "--address", role.grpc, stdin=text).returncode == 0
        yield System(role, ("--log", f"sqlite:///{folder / 'data' / 'log.sqlite'}", "--stores", role.grpc), start_ms)


def test_a_lie_of_the_shadow_is_found_and_the_answers_stay_right(system: System, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with LyingReader(system.role.grpc) as reader:
        shadow = ("--shadow", reader.address, "--share", "100%", "--shadow-dir", str(kept))
        with Role(tmp_path, "querier", *system.log, *shadow) as querier:
            right = system.read(querier)
            wait_until(lambda: querier.metrics()['tsdb_shadow_reads_total{result="equal"}'] == 2, WITHIN_S)
            reader.lie = with_wrong_value
            assert system.read(querier) == right
            wait_until(lambda: querier.metrics()['tsdb_shadow_reads_total{result="different"}'] == 2, WITHIN_S)
            assert querier.terminate() == 0
    done = run_tsdb("shadow", "diff", str(kept), "--output", "json")
    assert done.returncode == 1
    reads = json.loads(done.stdout)["reads"]
    assert sorted(read["method"] for read in reads) == ["Query", "Select"]
    (series,) = next(read for read in reads if read["method"] == "Select")["series"]
    assert series["labels"] == {"__name__": "up", "job": "j"}
    assert series["rows"] == [[system.start_ms, "0.5", "0.53125"]]
    assert b"0.53125" in run_tsdb("shadow", "diff", str(kept)).stdout


def test_promql_is_compared_through_a_querier_of_an_experiment(system: System, tmp_path: Path) -> None:
    """The shadow's querier reads only the store of its experiment, although its list also has the stores of
    production.
    """
    log, experiment = system.log[:2], ("--experiment", "trial")
    with Role(tmp_path, "store", *log, *experiment) as store:
        stores = ("--stores", f"{store.grpc},{system.role.grpc}")
        with (
            Role(tmp_path, "querier", *log, *experiment, *stores) as theirs,
            Role(tmp_path, "querier", *system.log, "--shadow", theirs.grpc, "--share", "100%") as querier,
        ):
            system.read(querier)
            wait_until(lambda: querier.metrics()['tsdb_shadow_reads_total{result="equal"}'] == 2, WITHIN_S)
            assert theirs.metrics()['tsdb_experiment_query_stores_apart{experiment="trial"}'] == 1
            assert tsdb_json("status", "--address", theirs.grpc)["experiment"] == "trial"


def test_the_own_address_ends_the_start_by_name(system: System) -> None:
    own = system.role.grpc.replace("127.0.0.1", "localhost")
    done = run_tsdb("querier", *system.log, "--grpc", system.role.grpc, "--http", "127.0.0.1:0", "--shadow", own)
    assert done.returncode == 1
    assert b"is the address of this querier" in done.stderr


def test_a_folder_without_differing_reads_is_said_so(tmp_path: Path) -> None:
    done = run_tsdb("shadow", "diff", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"no read in" in done.stderr
    missing = run_tsdb("shadow", "diff", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert b"give the shadow_dir of a querier" in missing.stderr
