"""deploy/requirements*.lock: exact versions with hashes, which satisfy pyproject.toml and what its packages need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.deploy_files import DEPLOY, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
WANTED = {
    "requirements.lock": [*DEPENDENCIES, *EXTRAS["ui"]],
    "requirements-spark.lock": [*DEPENDENCIES, *EXTRAS["ui"], *EXTRAS["spark"]],
    "requirements-build.lock": PROJECT["build-system"]["requires"],
}
PIN = re.compile(r"^([\w.-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux", "platform_system": "Linux"}
by_lock = pytest.mark.parametrize("lock", WANTED)


def pins(lock: str) -> dict[str, str]:
    """Package -> version. Fails at a line that is not a version with hashes."""
    text = re.sub(r"\s*\\\n\s*", " ", (DEPLOY / lock).read_text())
    found = {line: PIN.match(line) for line in text.splitlines() if not line.startswith("#")}
    assert [line for line, match in found.items() if not match] == []
    return {canonicalize_name(match[1]): match[2] for match in found.values() if match}


@by_lock
def test_a_lock_satisfies_pyproject(lock: str) -> None:
    pinned = pins(lock)
    wanted = [Requirement(text) for text in WANTED[lock]]
    assert [
        str(one) for one in wanted if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))
    ] == [], "run: make lock"


@by_lock
def test_a_lock_has_every_package_that_its_packages_need(lock: str) -> None:
    """Uses the metadata of the packages installed here, which may have other versions."""
    pinned = pins(lock)
    needed = {
        canonicalize_name(one.name): name
        for name in pinned
        for one in _needs(name)
        if one.marker is None or one.marker.evaluate({**IMAGE, "extra": ""})
    }
    assert {name: by for name, by in needed.items() if name not in pinned} == {}


def _needs(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:
        return []  # setuptools: an environment need not have it.


def test_the_compiler_of_kernels_is_in_the_lock_of_the_build_alone() -> None:
    assert {"numba", "llvmlite"} <= pins("requirements-build.lock").keys()
    for lock in ("requirements.lock", "requirements-spark.lock"):
        assert not {"numba", "llvmlite"} & pins(lock).keys()
    (compiler,) = EXTRAS["build"]
    assert compiler in PROJECT["build-system"]["requires"]


IMPORTS = """
import importlib, json, sys
from tsdb.codec.kernel_sources import kernel_modules
for name in kernel_modules():
    importlib.import_module(name)
ours = {"tsdb", "ingest", "spark_backfill"}
roots = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - ours
files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in roots if name in sys.modules}
print(json.dumps(sorted(name for name, file in files.items() if f"site-packages/{name}" in file and name[0] != "_")))
"""


@pytest.mark.slow
def test_the_build_requires_what_modules_with_kernels_import() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    required = {canonicalize_name(Requirement(text).name) for text in PROJECT["build-system"]["requires"]}
    assert set(json.loads(done.stdout)) == required - {"setuptools", "numba"}


def test_the_build_has_the_versions_of_the_images() -> None:
    base, build = pins("requirements.lock"), pins("requirements-build.lock")
    assert {name: build[name] for name in base.keys() & build.keys()} == {
        name: base[name] for name in base.keys() & build.keys()
    }


def test_both_images_have_the_same_versions() -> None:
    base, spark = pins("requirements.lock"), pins("requirements-spark.lock")
    assert base.items() <= spark.items()


@by_lock
def test_a_lock_names_no_server(lock: str) -> None:
    assert "://" not in (DEPLOY / lock).read_text()
