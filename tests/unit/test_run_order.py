"""The order of a test run: each test once, a group in one process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.run_order import WITHOUT_SERVERS, Scheduling, group_of

PROCESSES, TESTS = 4, 3
FILES = [
    *("tests/spark/jobs/test_a.py", "tests/spark/jobs/test_b.py", "tests/spark/test_c.py"),
    *(f"tests/fault/test_{number}.py" for number in range(8)),
    *(f"tests/unit/test_{number}.py" for number in range(8)),
]


class Process:
    """A process of xdist that runs nothing: it keeps the tests that it was sent."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.waiting: list[int] = []

    def send_runtest_some(self, places: list[int]) -> None:
        self.waiting += places

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(nodeids: list[str]) -> tuple[Scheduling, list[Process]]:
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * PROCESSES, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduling, processes = Scheduling(config), [Process(number) for number in range(PROCESSES)]
    for process in processes:
        scheduling.add_node(process)
        scheduling.add_node_collection(process, nodeids)
    scheduling.schedule()
    return scheduling, processes


def test_every_test_runs_once_and_the_first_process_begins_with_those_without_servers() -> None:
    nodeids = [f"{file}::test_{number}" for file in FILES for number in range(TESTS)]
    scheduling, processes = scheduled(nodeids)
    ran: list[int] = []
    while any(process.waiting for process in processes):
        kinds = {group.startswith(WITHOUT_SERVERS) for group in scheduling.workqueue}
        running = [group_of(nodeids[process.waiting[0]].partition("::")[0]) for process in processes if process.waiting]
        if len(kinds) == 2:
            assert [group.startswith(WITHOUT_SERVERS) for group in running] == [True, *[False] * (PROCESSES - 1)]
        for process in processes:
            if process.waiting:
                ran.append(process.waiting.pop(0))
                scheduling.mark_test_complete(process, ran[-1])
    assert sorted(ran) == list(range(len(nodeids)))
    assert all(process.shutting_down for process in processes)


def test_the_tests_of_a_group_run_in_one_process_and_in_their_order() -> None:
    nodeids = [f"{file}::test_{number}" for file in FILES[:3] for number in range(TESTS)]
    _, processes = scheduled(nodeids)
    assert sorted(process.waiting for process in processes if process.waiting) == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
