"""An idle process waits for events: it makes few Python calls."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_ok
from support.shared_servers import SharedBroker

SCRIPT = Path(__file__).parents[1] / "support/scripts/counted_calls.py"
PARTITIONS = 8
# A busy machine showed 1,988, 1,380, 481, 87 and 529; the limits are twice as high.
CALLS_ON_KAFKA = {"store": 4_000, "chunker": 3_000, "loader": 1_200, "gateway": 500, "querier": 1_200}
WINDOW_S = 10  # Longer than the longest interval between two looks at everything.
SETTLED_WITHIN_S = 90.0


class CountedRole(Role):
    """A role whose calls are counted."""

    def __init__(self, scratch: Path, *arguments: str) -> None:
        self.counts = scratch / f"{arguments[0]}.calls"
        wrapper = (sys.executable, str(SCRIPT), str(self.counts))
        super().__init__(scratch, *arguments, wrapper=wrapper)

    @property
    def seconds(self) -> int:
        """The number of seconds that were counted."""
        return len(self._lines())

    def assert_idle_below(self, calls_a_second: int, begun: int) -> None:
        """Wait until the work of the start has ended and a window after `begun` seconds is below the bound."""
        wait_until(
            lambda: self.seconds >= begun + WINDOW_S and self._rate() < calls_a_second,
            SETTLED_WITHIN_S,
            describe=lambda: f"{self._rate():.0f} calls a second, at most {calls_a_second}: {self._lines()[-1][1]}",
        )

    def _rate(self) -> float:
        return sum(count for count, _ in self._lines()[-WINDOW_S:]) / WINDOW_S

    def _lines(self) -> list[tuple[int, str]]:
        lines = self.counts.read_text().splitlines()
        return [(int(count), top) for count, _, top in (line.partition(" ") for line in lines)]


def test_an_idle_standalone_makes_few_calls(tmp_path: Path) -> None:
    with CountedRole(tmp_path, "standalone", "--data-dir", str(tmp_path / "data")) as role:
        role.assert_idle_below(1_500, role.seconds)  # A busy machine made 880. With polls of 50 ms it made 11,200.


def test_idle_roles_on_kafka_make_few_calls(tmp_path: Path, kafka: SharedBroker) -> None:
    log = ("--log", f"kafka://{kafka.bootstrap}", "--log-prefix", f"t{uuid.uuid4().hex[:12]}.")
    history = ("--history", f"sqlite:///{tmp_path}/history.db")
    tsdb_ok("topics", "create", *log, "--partitions", str(PARTITIONS), "--replication", "1")
    tsdb_ok("history", "create", *log, *history)
    with (
        CountedRole(tmp_path, "store", *log) as store,
        CountedRole(tmp_path, "chunker", *log) as chunker,
        CountedRole(tmp_path, "loader", *log, *history) as loader,
        CountedRole(tmp_path, "gateway", *log) as gateway,
        CountedRole(tmp_path, "querier", *log, *history, "--stores", store.grpc) as querier,
    ):
        # All have started, and the windows of all run at the same time.
        begun = {role: role.seconds for role in (store, chunker, loader, gateway, querier)}
        for role, seconds in begun.items():
            role.assert_idle_below(CALLS_ON_KAFKA[role.arguments[0]], seconds)
