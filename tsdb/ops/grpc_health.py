"""grpc.health.v1: the whole server under "", each partition under "partition-N"."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE = health.SERVICE_NAME
_STATUS = health_pb2.HealthCheckResponse


def partition_service(partition: int) -> str:
    """The health service name of one partition of the log."""
    return f"partition-{partition}"


class Health:
    """What health checks answer. Not serving until told otherwise. Thread-safe."""

    def __init__(self) -> None:
        # Own threads: when calls occupy all others, a health check still answers.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="grpc-health")
        self._servicer: Any = health.HealthServicer(
            experimental_non_blocking=True, experimental_thread_pool=self._threads
        )
        self.set("", serving=False)

    def set(self, service: str, serving: bool) -> None:
        """`service`: "" for the whole server, or `partition_service(n)`. No effect once `drain` was called."""
        self._servicer.set(service, _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    def drain(self) -> None:
        """Everything is not serving from now on."""
        self._servicer.enter_graceful_shutdown()

    def add_to(self, server: grpc.Server) -> None:
        check = self._servicer.Check

        def check_on_own_thread(request: Any, context: grpc.ServicerContext) -> Any:
            return check(request, context)

        check_on_own_thread.experimental_thread_pool = self._threads  # type: ignore[attr-defined]  # read by grpc
        self._servicer.Check = check_on_own_thread
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
