"""A driver in a separate process, with its JVM and workers, for tests that kill it.

`python -m support.spark.pipeline_process URL PREFIX CHECKPOINT END_MS` processes the whole log in many small batches,
with the clock stopped at END_MS.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

TESTS = Path(__file__).resolve().parents[2]


class DriverProcess:
    """Starts at once. `kill` sends SIGKILL to driver, JVM and workers."""

    def __init__(self, scratch: Path, module: str, *arguments: str) -> None:
        path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        self._output = (scratch / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill driver, JVM and workers at any point of their work. A second call does nothing."""
        if self.running:
            # The JVM is in a separate process session, so the process group does not include it.
            driver = psutil.Process(self._process.pid)
            for one in (driver, *driver.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self._process.wait()
        self._output.close()


class PipelineProcess(DriverProcess):
    """The pipeline of `main`."""

    def __init__(self, url: str, prefix: str, checkpoint: Path, end_ms: int, scratch: Path) -> None:
        super().__init__(scratch, "support.spark.pipeline_process", url, prefix, str(checkpoint), str(end_ms))


def main(url: str, prefix: str, checkpoint: str, end_ms: str) -> None:
    """Process the whole log, or run until killed."""
    from spark_backfill.places import Places
    from support.spark.pipelines import run_all, still
    from support.spark.spark import test_session
    from tsdb.log.open import open_log
    from tsdb.log.settings import LogSettings

    clock = still(int(end_ms))
    settings = LogSettings(group_session_s=6.5)  # About the minimum that a broker allows.
    with (
        open_log(url, prefix=prefix, settings=settings, clock=clock) as log,
        test_session(Path(checkpoint).parent / "scratch") as spark,
    ):
        run_all(spark, log, Places(url, prefix), Path(checkpoint), clock=clock)


if __name__ == "__main__":
    main(*sys.argv[1:])
