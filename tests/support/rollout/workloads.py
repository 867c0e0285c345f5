"""StatefulSets and Deployments: the pods of one workload, and the rules by which Kubernetes replaces them.

A rollout runs on the thread that calls it. It follows the controllers of Kubernetes 1.32 to 1.37: with `OrderedReady`
no pod is deleted while another one of the set is not available, and a Deployment counts pods that end as gone.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from support.rollout.pods import Pod
from support.rollout.releases import Release
from support.servers.logs import wait_until

ROLLED_WITHIN_S = 1200.0

NewPod = Callable[[str, Mapping[str, Any], Release], Pod]
"""(name, template, release) -> a pod that is not started."""


class Workload:
    """The pods of one object. Its rollouts are called one after the other; the rest may be called from any thread."""

    def __init__(self, value: Mapping[str, Any], new_pod: NewPod) -> None:
        self.name = str(value["metadata"]["name"])
        self._spec = value["spec"]
        # An autoscaler decides when the object has no number; it gives at least 2.
        self._replicas: int = self._spec.get("replicas", 2)
        self._ready_s: float = self._spec.get("minReadySeconds", 0)
        self._new_pod = new_pod
        self._lock = threading.Lock()  # Guards _pods and _gone.
        self._pods: list[Pod] = []
        self._gone: list[Pod] = []
        self.faults: list[str] = []

    @property
    def pods(self) -> Sequence[Pod]:
        """All pods that exist, those that end included."""
        with self._lock:
            gone = [pod for pod in self._pods if pod.gone_at is not None]
            self._gone += gone
            self.faults += [fault for pod in gone for fault in pod.faults]
            self._pods = [pod for pod in self._pods if pod.gone_at is None]
            return list(self._pods)

    @property
    def gone(self) -> Sequence[Pod]:
        """All pods that have ended."""
        with self._lock:
            return list(self._gone)

    def kill(self) -> None:
        """End all pods at once, and give all addresses back."""
        for pod in self.pods:
            pod.kill()
        for pod in self._gone:
            pod.close()

    def install(self, release: Release) -> None:
        """Create the pods. Returns when all are available."""
        raise NotImplementedError

    def roll(self, release: Release) -> None:
        """Replace all pods. Returns when all new ones are available and the old ones are gone."""
        raise NotImplementedError

    def _create(self, name: str, release: Release) -> None:
        pod = self._new_pod(name, self._spec["template"], release)
        with self._lock:
            self._pods.append(pod)
        pod.start()

    def _available(self) -> int:
        return sum(pod.ready_for(self._ready_s) for pod in self.pods if not pod.stopping)

    def _wait_available(self) -> None:
        self._wait(lambda: self._available() >= self._replicas)

    def _wait(self, done: Callable[[], bool]) -> None:
        wait_until(lambda: done() or bool(self.faults), ROLLED_WITHIN_S, describe=lambda: self.name)
        assert not self.faults, self.faults


class StatefulSet(Workload):
    """A set with `OrderedReady`: one pod after the other, from the last one."""

    def install(self, release: Release) -> None:
        for number in range(self._replicas):
            self._create(f"{self.name}-{number}", release)
            self._wait(lambda number=number: self._available() > number)  # type: ignore[misc]  # mypy: no defaults.

    def roll(self, release: Release) -> None:
        for number in reversed(range(self._replicas)):
            self._wait_available()
            name = f"{self.name}-{number}"
            (old,) = (pod for pod in self.pods if pod.name == name)
            old.delete()
            self._wait(lambda name=name: all(pod.name != name for pod in self.pods))  # type: ignore[misc]
            self._create(name, release)
        self._wait_available()


class Deployment(Workload):
    """Pods without an order, by maxSurge and maxUnavailable."""

    def __init__(self, value: Mapping[str, Any], new_pod: NewPod) -> None:
        super().__init__(value, new_pod)
        rolling = self._spec["strategy"]["rollingUpdate"]
        self._surge, self._unavailable = rolling["maxSurge"], rolling["maxUnavailable"]
        self._numbers = itertools.count()

    def install(self, release: Release) -> None:
        for _ in range(self._replicas):
            self._create(f"{self.name}-{next(self._numbers)}", release)
        self._wait_available()

    def roll(self, release: Release) -> None:
        self._wait(lambda: self._step(release))
        self._wait(lambda: not any(pod.stopping for pod in self.pods))

    def _step(self, release: Release) -> bool:
        """Create or delete what the strategy allows now. Returns whether only available new pods are left."""
        running = [pod for pod in self.pods if not pod.stopping]
        old = [pod for pod in running if pod.release is not release]
        if len(running) < self._replicas + self._surge and len(running) - len(old) < self._replicas:
            self._create(f"{self.name}-{next(self._numbers)}", release)
        elif old and self._available() > self._replicas - self._unavailable:
            old[0].delete()
        return not old and self._available() == self._replicas
