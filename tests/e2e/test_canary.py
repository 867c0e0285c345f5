"""A canary process beside a real system. A reader between them can change answers: right ones are exact, short
and wrong ones are counted. A canary without rights does not start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.fakes.lying_reader import LyingReader, with_wrong_value, without_first_samples
from support.servers.logs import wait_until
from support.servers.processes import Role, run_tsdb

WITHIN_S = 60.0
TOKENS = {"TSDB_WRITE_TOKEN": "w", "TSDB_READ_TOKEN": "r"}

pytestmark = pytest.mark.timeout(600)  # Several starts of a process, each with its kernels to load on a busy machine.


@dataclass(frozen=True)
class Running:
    """A standalone process with tokens, and a reader in front of it."""

    system: Role
    reader: LyingReader

    @property
    def targets(self) -> tuple[str, ...]:
        return ("--gateway", self.system.grpc, "--querier", self.reader.address)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("canary")
    data = ("--data-dir", str(folder / "data"))
    with Role(folder, "standalone", *data, env={"TSDB_TOKEN": "w,r"}) as system, LyingReader(system.grpc) as reader:
        yield Running(system, reader)


def counted(canary: Role, result: str, path: str = "memory") -> float:
    return canary.metrics()[f'tsdb_canary_samples_total{{path="{path}",result="{result}"}}']


def wait_above(canary: Role, result: str, figure: float) -> None:
    wait_until(lambda: counted(canary, result) > figure, WITHIN_S)


def test_right_answers_are_exact_and_lies_are_counted_also_after_a_restart(running: Running, tmp_path: Path) -> None:
    settings = ("--canary-period-s", "0.5", "--canary-check-s", "0.5", "--canary-name", "e2e")
    with Role(tmp_path, "canary", *running.targets, *settings, env=TOKENS) as canary:
        wait_above(canary, "exact", 100)
        canary.kill()
        canary.start()
        wait_above(canary, "exact", 100)
        assert {counted(canary, result) for result in ("mismatch", "missing", "unexpected")} == {0.0}
        wait_until(lambda: canary.metrics()["tsdb_canary_freshness_seconds_count"] > 0, WITHIN_S)
        assert canary.metrics()['tsdb_canary_path_checked{path="history"}'] == 0, "the whole log is in memory"
        for lie, result in ((without_first_samples, "missing"), (with_wrong_value, "mismatch")):
            running.reader.lie = lie
            wait_above(canary, result, 0)
            running.reader.lie = None
        wait_above(canary, "exact", counted(canary, "exact") + 100)
        assert canary.ready()[0] == 200, "findings do not make it unready"
        assert canary.terminate() == 0


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ({"TSDB_WRITE_TOKEN": "w"}, b"may not read at the querier"),
        ({"TSDB_READ_TOKEN": "r"}, b"may not write at the gateway"),
    ],
)
def test_without_rights_it_does_not_start_and_names_the_missing_one(
    running: Running, tokens: dict[str, str], says: bytes
) -> None:
    done = run_tsdb("canary", *running.targets, "--http", "127.0.0.1:0", env=tokens)
    assert done.returncode == 1
    assert says in done.stderr
