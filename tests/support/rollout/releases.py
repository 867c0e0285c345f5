"""A release as its image has it: the sources of a commit, the version that they name, and compiled kernels.

The sources and kernels of the last release are kept in the user's cache: they cost minutes once.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.servers.processes import TSDB

ROOT = Path(__file__).resolve().parents[3]
WARM_UP_WITHIN_S = 1200.0
LAST_COMMIT = "f04c9b2"  # Stands for the last release until a release is tagged.


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """version: the version of the installed distribution. folder: has that distribution, and is the working folder of
    its processes, for `python -m` looks there first. environment: the environment of its processes. keeps_order:
    whether it has `await-release`; in the manifests of releases before no pod waits.
    """

    version: str
    folder: Path
    environment: Mapping[str, str]
    keeps_order: bool

    def run(self, *arguments: str, timeout_s: float, env: Mapping[str, str] | None = None) -> None:
        """One command of the release to its end, which must be a success."""
        done = subprocess.run(
            [*TSDB, *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{self.version}: tsdb {' '.join(arguments)}\n{done.stderr[-4000:]}"


def this_release(scratch: Path, version: str) -> Release:
    """The sources of this checkout, with the kernels of every other test."""
    return _release(scratch, version, ROOT, {})


def last_release(scratch: Path, version: str) -> Release:
    """The newest tag before this commit, else LAST_COMMIT. Skips the test where the clone does not reach so far."""
    described = _git("describe", "--tags", "--abbrev=0", "HEAD^")
    name = described.stdout.decode().strip() or LAST_COMMIT
    commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").stdout.decode().strip()
    if not commit:
        pytest.skip(f"this clone has no commit {name}, the last release: it is shallow, or no clone at all")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "kafka-tsdb" / "releases" / commit[:12]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
            archive = _git("archive", "--format=tar", commit, "tsdb", "ingest", "chunker")
            with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
                files.extractall(Path(unpacked) / "tree", filter="data")
            (Path(unpacked) / "tree").rename(folder)
    release = _release(scratch, version, folder, {"NUMBA_CACHE_DIR": str(folder / "kernels")})
    # That release compiles its kernels at run time.
    release.run("warmup", timeout_s=WARM_UP_WITHIN_S)
    return release


def _release(scratch: Path, version: str, tree: Path, environment: Mapping[str, str]) -> Release:
    """A distribution that names the version comes first on the search path, then the sources."""
    folder = scratch / version
    named = folder / f"kafka_tsdb-{version}.dist-info"
    named.mkdir(parents=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kafka-tsdb\nVersion: {version}\n")
    environment = {**environment, "PYTHONPATH": os.pathsep.join((str(folder), str(tree)))}
    return Release(version, folder, environment, (tree / "tsdb/cli/await_release.py").exists())


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
