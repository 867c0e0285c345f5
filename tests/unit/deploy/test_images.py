"""Recipes of images: pinned bases, kernels in the package, nobody is root; what manifests rely on is in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.deploy_files import DEPLOY, ROOT, manifests, spark_defaults

RECIPES = sorted(DEPLOY.glob("Containerfile*"))
SPARK = DEPLOY / "Containerfile.spark"
by_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)


def instructions(recipe: Path) -> list[tuple[str, str]]:
    """(instruction, its text) of a recipe, with lines joined and comments left out."""
    lines = [line for line in recipe.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, text) for name, _, text in (line.partition(" ") for line in joined.splitlines())]


@by_recipe
def test_instructions_are_known_and_bases_have_a_version(recipe: Path) -> None:
    names = {name for name, _ in instructions(recipe)}
    assert names <= {"FROM", "ARG", "RUN", "COPY", "ENV", "USER", "WORKDIR", "EXPOSE", "ENTRYPOINT"}
    bases = [text.split()[0] for name, text in instructions(recipe) if name == "FROM"]
    assert [base for base in bases if not re.search(r"^docker\.io/\S+:\d+\.\d+\S*$", base)] == []
    pythons = {base for base in bases if "/python:" in base}
    assert len(pythons) == 1, "the packages of one Python do not load in another"


@by_recipe
def test_the_last_user_is_a_number_and_not_root(recipe: Path) -> None:
    users = [text for name, text in instructions(recipe) if name == "USER"]
    # Kubernetes' runAsNonRoot needs a number; manifests name the same one.
    assert users[-1:] == ["10001"]
    assert f"--uid {users[-1]}" in recipe.read_text()
    known = set(re.findall(r'"(?:runAsUser|fsGroup)": (\d+)', json.dumps([one.value for one in manifests()])))
    assert known == {"10001"}


@by_recipe
def test_system_packages_leave_no_lists_and_java_has_a_version(recipe: Path) -> None:
    texts = [text for name, text in instructions(recipe) if name == "RUN" and "apt-get install" in text]
    for text in texts:
        assert "--no-install-recommends" in text
        assert "rm -rf /var/lib/apt/lists/*" in text
    javas = [name for text in texts for name in re.findall(r"\S*(?:jre|jdk)\S*-headless", text)]
    assert javas == (["openjdk-17-jre-headless"] if recipe == SPARK else [])


@by_recipe
def test_every_source_of_a_copy_exists(recipe: Path) -> None:
    copies = [text.split() for name, text in instructions(recipe) if name == "COPY" and not text.startswith("--from")]
    assert copies
    assert [source for words in copies for source in words[:-1] if not (ROOT / source).exists()] == []


@by_recipe
def test_the_package_is_built_with_the_code_that_compiles_its_kernels(recipe: Path) -> None:
    copied = {source for name, text in instructions(recipe) if name == "COPY" for source in text.split()[:-1]}
    assert {"pyproject.toml", "setup.py", "kernel_build", "tsdb", "ingest", "chunker", "spark_backfill"} <= copied
    # A wheel has the kernels; an editable install has none.
    runs = [text for name, text in instructions(recipe) if name == "RUN"]
    assert [text for text in runs if "pip wheel" in text] == [
        "pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ."
    ]


@by_recipe
def test_the_compilers_stay_out_of_the_image(recipe: Path) -> None:
    *_, last = re.split(r"^FROM ", recipe.read_text(), flags=re.MULTILINE)
    assert "gcc" not in last
    assert "NUMBA" not in recipe.read_text()
    build = [words for words in last.split("&&") if "requirements-build.lock" in words and "pip install" in words]
    removed = {
        name
        for words in re.findall(r"pip uninstall --yes (.+?)(?: \\)?$", last, re.MULTILINE)
        for name in words.split()
    }
    assert not build or {"setuptools", "numba", "llvmlite"} <= removed


@by_recipe
def test_packages_come_from_locks_with_hashes_and_nothing_else_is_taken(recipe: Path) -> None:
    runs = [text for name, text in instructions(recipe) if name == "RUN"]
    installs = [word for text in runs for word in text.split("&&") if re.search(r"pip (install|wheel) ", word)]
    locks = {lock for words in installs for lock in re.findall(r"-r \S*?(requirements\S*\.lock)", words)}
    assert locks == {"requirements-spark.lock" if recipe == SPARK else "requirements.lock", "requirements-build.lock"}
    for words in installs:
        # The package itself: neither its dependencies nor those of its build are looked for.
        exact = "--require-hashes -r" if "-r " in words else "--no-deps"
        assert exact in words, words
        assert "--no-build-isolation" in words or "-r " in words or ".whl" in words, words
    assert any("pip check" in text for text in runs)


def test_files_of_spark_are_where_manifests_and_variables_look_for_them() -> None:
    recipe = SPARK.read_text()
    files = {
        found.removeprefix("local://")
        for one in manifests()
        for found in re.findall(r"local://\S+?\.py", json.dumps(one.value))
    }
    assert files
    for file in files:
        assert f" {file}" in recipe
    (folder,) = re.findall(r"SPARK_CONF_DIR=(\S+)", recipe)
    assert f" deploy/spark/spark-defaults.conf {folder}/" in recipe
    settings = spark_defaults((DEPLOY / "spark/spark-defaults.conf").read_text())
    assert settings == {"spark.python.daemon.module": "spark_backfill.worker_daemon"}


def test_folders_that_volumes_cover_belong_to_the_user() -> None:
    """A new volume takes owner and content from the folder of the image."""
    (made,) = re.findall(r"install -d -o tsdb (.+)$", SPARK.read_text(), re.MULTILINE)
    assert "/var/lib/kafka-tsdb" in made.split()
