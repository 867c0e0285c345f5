"""No thread starts beside tsdb.ops.threads, and no future of work is dropped: a failure would stay unseen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tsdb", "chunker", "ingest", "spark_backfill")
STARTERS = {
    "tsdb/ops/threads.py",  # Starts all others.
    "tsdb/ops/lifecycle.py",  # The last resort: ends the process, and no failure of it can.
    # A signal handler, which must not take locks, starts this thread. It only sets an event.
    "tsdb/cli/terminal/signals.py",
    "tsdb/kafka_clients.py",  # From a finalizer, where a lock of ours may be taken; it only drops a reference.
    # A library that stands alone: `ParallelConsumer.failure` and `ExpiryScanner.join` report the failures.
    "tsdb/parallel_consumer/consumer.py",
    "tsdb/parallel_consumer/executors/runtimes.py",
    "tsdb/parallel_consumer/kafka/producer.py",
    "tsdb/parallel_consumer/kafka/source.py",
    "tsdb/parallel_consumer/registry/expiry.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_thread_starts_beside_the_mechanism(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in STARTERS
        for line in _bare_starts(path.read_text())
    ]
    assert not found, f"start these threads by tsdb.ops.threads.new_thread, and look at each future: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "threading.Thread(target=run)",
        "threading.Timer(1.0, run)",
        "Thread(target=run)",
        "_thread.start_new_thread(run, ())",
        "class Mine(threading.Thread): ...",
        "pool.submit(run, 1)",
        "pool.map(run, some)",
        "loop.create_task(run())",
        "asyncio.ensure_future(run())",
        "loop.run_in_executor(None, run)",
        "asyncio.run_coroutine_threadsafe(run(), loop)",
    ],
)
def test_the_check_finds_a_thread_whose_failure_nobody_sees(source: str) -> None:
    assert list(_bare_starts("import threading\npool = ThreadPoolExecutor(2)\n" + source)) == [3]


@pytest.mark.parametrize("source", ["future = pool.submit(run)", "lanes.submit(run)", "x = list(pool.map(run, some))"])
def test_the_check_passes_work_whose_outcome_is_used(source: str) -> None:
    pool = "" if source.startswith("lanes") else "pool = ThreadPoolExecutor(2)"
    assert not list(_bare_starts(f"{pool}\n{source}"))


_THREADS = {"Thread", "Timer", "start_new_thread"}
_TASKS = {"create_task", "ensure_future", "run_in_executor", "run_coroutine_threadsafe"}
_POOLS = {"ThreadPoolExecutor", "ProcessPoolExecutor"}


def _bare_starts(source: str) -> Iterator[int]:
    """Lines that start a thread themselves, or drop the future of work that they start."""
    tree = ast.parse(source)
    pooled = any(isinstance(node, ast.Call) and _name(node.func) in _POOLS for node in ast.walk(tree))
    dropped = _TASKS | ({"submit", "map"} if pooled else set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            starts = _name(node.func) in _THREADS
        elif isinstance(node, ast.ClassDef):
            starts = any(_name(base) in _THREADS for base in node.bases)
        else:
            call = node.value if isinstance(node, ast.Expr) else None
            starts = isinstance(call, ast.Call) and _name(call.func) in dropped
        if starts and isinstance(node, ast.expr | ast.stmt):
            yield node.lineno


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
