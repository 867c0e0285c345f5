"""The threads of writes share one core; the main thread and the others of the process keep all of them."""

from __future__ import annotations

import os
from pathlib import Path

from support.data.tables import NODE_5S
from support.drills.writers import Writers
from support.servers.deployments import embedded
from support.servers.logs import wait_until
from support.servers.processes import tsdb_ok

ALL_CORES = os.sched_getaffinity(0)
WRITE_THREADS_MIN = 3  # Names of the threads of the gRPC server, of a call, and of the log's writer.


def cores_of_threads(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]


def test_the_threads_of_writes_come_to_share_a_core(tmp_path: Path) -> None:
    with embedded(tmp_path) as deployment:
        pid = deployment.gateway.process.pid

        def kept() -> list[set[int]]:
            return [cores for cores in cores_of_threads(pid) if len(cores) == 1]

        # Threads are bound in an interval in which the process works, so the writes go on until then.
        with Writers(deployment.gateway.grpc, timeout_s=5.0):
            wait_until(lambda: len(kept()) >= WRITE_THREADS_MIN, describe=lambda: str(cores_of_threads(pid)))
        assert os.sched_getaffinity(pid) == ALL_CORES
        assert len(kept()) < len(cores_of_threads(pid)) or len(ALL_CORES) == 1


def test_without_the_setting_every_thread_keeps_all_cores(tmp_path: Path) -> None:
    with embedded(tmp_path, "--no-writes-on-one-core") as deployment:
        tsdb_ok("write", str(NODE_5S), "--address", deployment.gateway.grpc, "--shift-to-now")
        cores = cores_of_threads(deployment.gateway.process.pid)
    assert all(one == ALL_CORES for one in cores)
