"""Cluster: exports executors, tasks and memory of a Spark application as metrics of its driver and as facts of its
summary.

Nothing scrapes executors. The driver's status store has their tasks, and the memory that their heartbeats report, also
without Spark's web pages. Where a process has ended, its last figures count.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 5.0
END_S = 10.0  # Time for the last look. A JVM that has ended answers at once, with an error.
# Part of Spark's reason for a removal that the driver itself decided, such as that of an idle executor.
BY_DRIVER = "by driver"

log = get_logger(__name__)

executors = gauge("tsdb_spark_executors", "Executors that are alive; on a local master the driver counts as one.")
executors_lost_total = counter(
    "tsdb_spark_executors_lost_total", "Executors that ended without the driver's decision: killed, or unreachable."
)
tasks_total = counter("tsdb_spark_tasks_total", "Ended tasks, by result.", label="result", values=("ok", "failed"))
tasks_running = gauge("tsdb_spark_tasks_running", "Tasks that run now.")
driver_heap = gauge("tsdb_spark_driver_heap_bytes", "Heap of the driver's JVM in use, garbage included.")
driver_heap_max = gauge("tsdb_spark_driver_heap_bytes_max", "Limit of that heap: spark.driver.memory.")
executor_heap = gauge("tsdb_spark_executor_heap_peak_bytes", "Heap of the executor whose JVM has used the most so far.")
executor_heap_max = gauge("tsdb_spark_executor_heap_bytes_max", "Limit of that heap: spark.executor.memory.")
executor_python = gauge(
    "tsdb_spark_executor_python_peak_bytes",
    "Memory of the Python workers of the executor that has used the most so far; 0 where Spark cannot read it.",
)


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """One executor, as Spark reports it. Peaks are in bytes, since its start."""

    name: str
    alive: bool
    removed_because: str
    tasks_ok: int
    tasks_failed: int
    tasks_running: int
    heap_peak: int
    python_peak: int

    @property
    def lost(self) -> bool:
        return not self.alive and BY_DRIVER not in self.removed_because


@dataclass(slots=True)
class Totals:
    """Counts since the begin of the application. Spark forgets dead executors after a while; the totals do not."""

    ok: int = 0
    failed: int = 0
    lost: int = 0
    known: dict[str, ExecutorState] = field(default_factory=dict)

    def add(self, states: list[ExecutorState]) -> Totals:
        """Take what is new since the last call. Returns the difference."""
        more = Totals()
        for state in states:
            before = self.known.get(state.name)
            more.ok += max(0, state.tasks_ok - (before.tasks_ok if before else 0))
            more.failed += max(0, state.tasks_failed - (before.tasks_failed if before else 0))
            more.lost += state.lost and not (before and before.lost)
        self.known = {state.name: state for state in states}
        self.ok += more.ok
        self.failed += more.failed
        self.lost += more.lost
        return more


class ClusterWatch(Periodic):
    """Owns one thread that asks the driver's JVM at intervals. `totals`: the totals of the last look."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__("spark-cluster", EVERY_S, self.look)
        self._context = spark.sparkContext
        self._lock = threading.Lock()  # One look at a time: that of the thread, or the last one of a job.
        self.totals = Totals()

    def look(self) -> None:
        """Ask once and set the metrics. A JVM that has ended leaves them as they are."""
        from py4j.protocol import Py4JError

        with self._lock:
            try:
                states = self._states()
                self._show_driver()
            except (Py4JError, OSError) as error:
                log.debug("the JVM does not answer", error=str(error))
                return
            more = self.totals.add(states)
        tasks_total.labels("ok").inc(more.ok)
        tasks_total.labels("failed").inc(more.failed)
        executors_lost_total.inc(more.lost)
        alive = [state for state in states if state.alive]
        executors.set(len(alive))
        tasks_running.set(sum(state.tasks_running for state in alive))
        executor_heap.set(max((state.heap_peak for state in states), default=0))
        executor_python.set(max((state.python_peak for state in states), default=0))

    def facts(self) -> dict[str, str | int]:
        """Facts for a summary: figures of tasks and executors, and addresses with more about this application."""
        from py4j.protocol import Py4JError

        figures: dict[str, str | int] = {
            "tasks": self.totals.ok,
            "tasks_failed": self.totals.failed,
            "executors_lost": self.totals.lost,
        }
        try:
            return figures | places(self._context)
        except (Py4JError, OSError):
            return figures

    def _states(self) -> list[ExecutorState]:
        # PySpark's own status tracker has neither tasks nor memory of executors.
        found: Any = self._context._jsc.sc().statusStore().executorList(False)
        return [_state(found.apply(number)) for number in range(found.size())]

    def _show_driver(self) -> None:
        jvm: Any = self._context._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        driver_heap.set(runtime.totalMemory() - runtime.freeMemory())
        driver_heap_max.set(runtime.maxMemory())
        local = str(self._context.master).startswith("local")
        executor_heap_max.set(runtime.maxMemory() if local else self._executor_heap_max(jvm))

    def _executor_heap_max(self, jvm: Any) -> int:
        text = self._context.getConf().get("spark.executor.memory", "1g")
        return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


@contextmanager
def cluster_watch(spark: SparkSession) -> Iterator[ClusterWatch]:
    """A watch for one block."""
    watch = ClusterWatch(spark)
    watch.start()
    try:
        yield watch
    finally:
        watch.close()
        watch.join(END_S)


def places(context: Any) -> dict[str, str | int]:
    """Name of the application, the address of Spark's web pages, and the folder of its event log, where there are."""
    found = {"application": context.applicationId, "spark_ui": context.uiWebUrl}
    conf = context.getConf()
    if conf.get("spark.eventLog.enabled", "false") == "true":
        found["event_log"] = conf.get("spark.eventLog.dir", "file:///tmp/spark-events")
    return {name: text for name, text in found.items() if text}


def _state(summary: Any) -> ExecutorState:
    """The state from Spark's ExecutorSummary, a Java object."""
    reason, peaks = summary.removeReason(), summary.peakMemoryMetrics()

    def peak(name: str) -> int:
        return max(0, peaks.get().getMetricValue(name)) if peaks.isDefined() else 0

    return ExecutorState(
        summary.id(),
        summary.isActive(),
        reason.get() if reason.isDefined() else "",
        summary.completedTasks(),
        summary.failedTasks(),
        summary.activeTasks(),
        peak("JVMHeapMemory"),
        peak("ProcessTreePythonRSSMemory"),
    )
