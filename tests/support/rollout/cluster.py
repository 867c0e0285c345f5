"""An installation of deploy/kubernetes without Kubernetes: its workloads, services and names over real processes.

Objects are those of an overlay, rendered by kubectl. Each pod has an address of the loopback network, with the ports of
the manifests. Times are the ones of the manifests; what a node or a resolver learns late, it learns as late as it may.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stack.ports import Ports
from support.deploy_files import KUBERNETES, Manifest, rendered
from support.rollout.names import Names
from support.rollout.pods import Pod
from support.rollout.releases import Release
from support.rollout.services import ServiceAddress
from support.rollout.workloads import Deployment, StatefulSet, Workload

OVERLAY = KUBERNETES / "overlays/small"
SHARDS = 2
DNS_AGE_S = 30.0  # The longest that the DNS of a cluster keeps an answer.
ENDPOINTS_AGE_S = 5.0  # Delay of kube-proxy, which `preStop` must outlast.
SETUP_WITHIN_S = 300.0
SERVICES_FROM, PODS_FROM = 250, 1


class Cluster:
    """A context manager: leaving it ends all pods. settings: text of the file that each pod reads."""

    def __init__(self, scratch: Path, settings: str) -> None:
        self._scratch = scratch
        self._config = scratch / "tsdb.toml"
        self._config.write_text(settings)
        self._objects = _with_shards(rendered(OVERLAY), SHARDS)
        self._ports = Ports(1)  # A free port number, and with it a network that no other run uses.
        high, low = divmod(self._ports.numbers[0], 256)
        self._network = f"127.{high}.{low}"
        self._pod_numbers = itertools.count(PODS_FROM)
        self._names = Names(scratch / "names")
        self._services: dict[str, ServiceAddress] = {}
        self._stack = ExitStack()
        self._lock = threading.Lock()  # Endpoints take effect in the order in which they are found.
        self.workloads: list[Workload] = []
        for one in self._of("StatefulSet", "Deployment"):
            kind = StatefulSet if one.value["kind"] == "StatefulSet" else Deployment
            self.workloads.append(kind(one.value, self._new_pod))

    def __enter__(self) -> Self:
        self._names.check()
        self._stack.enter_context(self._ports)
        self._stack.enter_context(self._names)
        for number, one in enumerate(one for one in self._of("Service") if not _headless(one.value)):
            ports = [port["port"] for port in one.value["spec"]["ports"]]
            service = ServiceAddress(f"{self._network}.{SERVICES_FROM + number}", ports, ENDPOINTS_AGE_S)
            self._services[one.name] = self._stack.enter_context(service)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for workload in self.workloads:
            workload.kill()
        self._stack.close()

    def address(self, service: str, port: int) -> str:
        """HOST:PORT of a service, for callers from outside."""
        return f"{self._services[service].host}:{port}"

    def pods(self) -> list[Pod]:
        """All pods that exist."""
        return [pod for workload in self.workloads for pod in workload.pods]

    def began(self, role: str, release: Release) -> float:
        """When the first container of a release began in this role."""
        pods = [pod for workload in self.workloads for pod in (*workload.pods, *workload.gone)]
        return min(_at(pod.started_at) for pod in pods if pod.labels["role"] == role and pod.release is release)

    def drained(self, role: str, release: Release) -> float:
        """When the last container of a release got its SIGTERM in this role: it takes no new calls since then."""
        pods = [pod for workload in self.workloads for pod in workload.gone]
        return max(_at(pod.signalled_at) for pod in pods if pod.labels["role"] == role and pod.release is release)

    def faults(self) -> list[str]:
        """Restarts, kills and bad ends of all pods so far."""
        return [fault for workload in self.workloads for fault in workload.faults]

    def install(self, release: Release) -> None:
        """The first apply. Returns when every pod is available."""
        self._set_up(release)
        self._all("install", release)
        self._names.age_s = DNS_AGE_S

    def roll(self, release: Release) -> None:
        """One apply with other images: all workloads begin at once, and only their pods keep an order."""
        self._set_up(release)
        self._all("roll", release)

    def _all(self, verb: str, release: Release) -> None:
        with ThreadPoolExecutor(len(self.workloads)) as threads:
            list(threads.map(lambda workload: getattr(workload, verb)(release), self.workloads))

    def _set_up(self, release: Release) -> None:
        """The job of the overlay, for one broker and one node."""
        (job,) = self._of("Job")
        pod = job.value["spec"]["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            arguments = list(container["args"])
            arguments[arguments.index("--replication") + 1] = "1"
            release.run(*arguments, timeout_s=SETUP_WITHIN_S, env={"TSDB_CONFIG": str(self._config)})

    def _of(self, *kinds: str) -> Sequence[Manifest]:
        return [one for one in self._objects if one.value["kind"] in kinds]

    def _new_pod(self, name: str, template: Mapping[str, Any], release: Release) -> Pod:
        return Pod(
            name,
            f"{self._network}.{next(self._pod_numbers)}",
            template,
            release,
            config=self._config,
            scratch=self._scratch,
            wrapper=self._names.wrapper,
            changed=self._update_endpoints,
        )

    def _update_endpoints(self) -> None:
        with self._lock:
            pods = self.pods()
            for one in self._of("Service"):
                selector = one.value["spec"]["selector"].items()
                mine = [pod for pod in pods if selector <= pod.labels.items()]
                if _headless(one.value):
                    assert one.value["spec"]["publishNotReadyAddresses"]
                    self._names.set(one.name, [pod.address for pod in mine])
                else:
                    ready = [pod.address for pod in mine if pod.ready_since is not None and not pod.stopping]
                    self._services[one.name].set(ready)


def _at(moment: float | None) -> float:
    assert moment is not None
    return moment


def _headless(service: Mapping[str, Any]) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _with_shards(objects: Sequence[Manifest], count: int) -> list[Manifest]:
    """The objects of another number of shards, as docs/deploy.md has it: fewer sets, and SHARDS."""
    kept = []
    for one in copy.deepcopy(list(objects)):
        if one.value["kind"] == "StatefulSet":
            spec = one.value["spec"]
            if int(spec["template"]["metadata"]["labels"]["shard"]) >= count:
                continue
            for variable in spec["template"]["spec"]["containers"][0]["env"]:
                if variable["name"] == "SHARDS":
                    variable["value"] = str(count)
        kept.append(one)
    assert sum(one.value["kind"] == "StatefulSet" for one in kept) == count
    return kept
