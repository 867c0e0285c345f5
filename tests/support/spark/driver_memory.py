"""Memory of a job's driver: bytes of the tasks' results, and the peak of its Python heap."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark.sql import SparkSession

DRAINED_WITHIN_MS = 60_000
TASKS_MIN = 8
ROOM_BYTES = 128 << 10  # Allowance for differences between runs: metrics of tasks, plans as text.
Done = TypeVar("Done")


class DriverMemory:
    """Memory of the jobs within a block. result_bytes: bytes that tasks sent to the driver, as Spark counts them for
    spark.driver.maxResultSize. python_bytes: peak memory of the driver's Python above that at the start.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark_context: Any = spark._jsc.sc()
        self._gateway: Any = spark._sc._gateway
        self._before: set[tuple[int, int]] = set()
        self.result_bytes = 0
        self.tasks = 0
        self.python_bytes = 0

    def __enter__(self) -> Self:
        self._before = {(stage.stageId(), stage.attemptId()) for stage in self._stages()}
        tracemalloc.start()
        self._held = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.python_bytes = tracemalloc.get_traced_memory()[1] - self._held
        tracemalloc.stop()
        for stage in self._stages():
            if (stage.stageId(), stage.attemptId()) not in self._before:
                self.result_bytes += stage.resultSize()
                self.tasks += stage.numCompleteTasks()

    def _stages(self) -> list[Any]:
        self._spark_context.listenerBus().waitUntilEmpty(DRAINED_WITHIN_MS)
        empty = self._gateway.jvm.java.util.ArrayList
        quantiles = self._gateway.new_array(self._gateway.jvm.double, 0)
        found = self._spark_context.statusStore().stageList(empty(), False, False, quantiles, empty())
        return [found.apply(at) for at in range(found.size())]


class DriverUsage:
    """Results and Python memory of the driver by job, once for each size of the data.

    python_room_bytes: allowance for what other threads of the process hold, such as a loader with its batch.
    """

    def __init__(self, spark: SparkSession, python_room_bytes: int = ROOM_BYTES) -> None:
        self._spark = spark
        self._python_room_bytes = python_room_bytes
        self._usage: dict[str, list[tuple[int, int]]] = {}

    def of(self, name: str, job: Callable[[], Done]) -> Done:
        """Run a job and measure its results and Python memory."""
        with DriverMemory(self._spark) as driver:
            done = job()
        assert driver.tasks >= TASKS_MIN, name
        self._usage.setdefault(name, []).append((driver.result_bytes, driver.python_bytes))
        return done

    def exceeded(self) -> list[str]:
        """The jobs that cost the driver more with the larger data than with the smaller.

        The first run of a job has the smaller data, all others the larger. Other threads only add to a peak, so the
        least of several runs counts.
        """
        print(self._usage)
        found = []
        for name, ((results, python), *more) in self._usage.items():
            least = [min(figures) for figures in zip(*more, strict=True)]
            if least[0] >= results + ROOM_BYTES or least[1] >= python + self._python_room_bytes:
                found.append(name)
        return found

    def assert_independent_of_data(self) -> None:
        """The larger data costs the driver no more than the smaller."""
        assert not self.exceeded()
