"""Kubernetes without nodes: a real etcd and a real kube-apiserver on loopback, and kubectl and helm that talk to it.

Nothing runs pods. The server checks and stores objects as in every cluster: schemas, defaults, rules between fields,
and its admission plugins, Pod Security among them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from stack.ports import Ports
from stack.process import ServerProcess
from support.deploy_files import Manifest, tool
from support.senders.go_senders import GoSender, built
from support.servers.logs import wait_until

ETCD = GoSender("etcd", "v3.7.3", "go.etcd.io/etcd/server/v3")
VERSION = "v1.37.2"
API_SERVER = GoSender(
    "kube-apiserver",
    VERSION,
    "k8s.io/kubernetes/cmd/kube-apiserver",
    module="k8s.io/kubernetes",
    published="v0.37.2",
    # Helm compares it with the range in Chart.yaml.
    stamps=(("k8s.io/component-base/version.gitVersion", VERSION),),
)
TOKEN = "administrator"
READY_WITHIN_S = 180.0
RUN_WITHIN_S = 240.0
# Its accounts are made by a controller, and so are the tokens that pods mount.
SWITCHED_OFF = "ServiceAccount"


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command. warnings: lines in which the server warns."""

    code: int
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("Warning:")]


class ApiServer:
    """A context manager. The object is empty of everything but what Kubernetes itself creates."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kubernetes-"))
        self._ports = Ports(3)
        etcd, peers, self._port = self._ports.numbers
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "accounts.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        (self._folder / "tokens.csv").write_text(f'{TOKEN},administrator,1,"system:masters"\n')
        self._etcd = ServerProcess(_etcd(self._folder, etcd, peers), self._folder / "etcd.log")
        self._server = ServerProcess(_api_server(self._folder, etcd, self._port), self._folder / "api-server.log")
        self._settings = self._folder / "kubeconfig"
        self._settings.write_text(yaml.safe_dump(_kubeconfig(self._port)))

    def __enter__(self) -> Self:
        self._etcd.start()
        self._server.start()
        try:
            wait_until(self._answers, READY_WITHIN_S, describe=self._server.tail)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()
        self._etcd.kill()
        self._ports.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> Done:
        return self._run("kubectl", *arguments, stdin=stdin)

    def helm(self, *arguments: str) -> Done:
        return self._run("helm", *arguments)

    def create_namespaces(self, objects: Sequence[Manifest]) -> None:
        """Create those of an installation. A trial run of other objects needs them."""
        mine = [one for one in objects if one.value["kind"] == "Namespace"]
        done = self.apply(mine)
        assert done.code == 0, done.err

    def apply(self, objects: Sequence[Manifest], *, trial: bool = False) -> Done:
        """`kubectl apply` with strict fields. trial: the server checks all and keeps nothing."""
        text = yaml.safe_dump_all([one.value for one in objects])
        more = ("--dry-run=server",) if trial else ()
        return self.kubectl("apply", "--validate=strict", *more, "--filename", "-", stdin=text)

    def kinds(self) -> set[str]:
        """All kinds that the server knows, as `apiVersion/kind`."""
        found = set()
        for version in self.kubectl("api-versions").out.split():
            path = f"/api/{version}" if "/" not in version else f"/apis/{version}"
            resources = json.loads(self.kubectl("get", "--raw", path).out)["resources"]
            found |= {f"{version}/{one['kind']}" for one in resources}
        return found

    def _answers(self) -> bool:
        assert self._etcd.running, self._etcd.tail()
        assert self._server.running, self._server.tail()
        return self.kubectl("get", "--raw", "/readyz").code == 0

    def _run(self, name: str, *arguments: str, stdin: str | None = None) -> Done:
        home = {"HOME": str(self._folder), "KUBECONFIG": str(self._settings)}
        done = subprocess.run(
            [tool(name), *arguments],
            input=stdin,
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def _etcd(folder: Path, port: int, peers: int) -> list[str]:
    clients, others = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    return [
        str(built(ETCD)),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={others}",
        f"--initial-advertise-peer-urls={others}",
        f"--initial-cluster=default={others}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(folder: Path, etcd: int, port: int) -> list[str]:
    key = folder / "accounts.key"
    return [
        str(built(API_SERVER)),
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        # Endpoints may not be on loopback, and no pod calls the server.
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        f"--disable-admission-plugins={SWITCHED_OFF}",
        "--service-cluster-ip-range=10.96.0.0/16",
    ]


def _kubeconfig(port: int) -> dict[str, Any]:
    # Its certificate is made at the start, and nothing outside of this machine is between.
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "administrator", "user": {"token": TOKEN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "administrator"}}],
        "current-context": "here",
    }
