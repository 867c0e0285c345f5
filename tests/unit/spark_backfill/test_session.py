"""A session is set up as tasks need it, and what is missing on a machine is named. No JVM here."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_backfill import worker_daemon
from spark_backfill.session import SessionOptions, configuration, require_java
from tsdb.model.errors import ConfigMismatch


def java_in(folder: Path) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, path = java_in(tmp_path / "home"), java_in(tmp_path / "path")
    assert require_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}) == home
    assert require_java({"PATH": str(path.parent)}) == path


@pytest.mark.parametrize(("home", "said"), [("/nowhere", "JAVA_HOME is /nowhere"), ("", "set JAVA_HOME or put `java`")])
def test_without_java_the_error_names_the_variable_to_set(home: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match=said) as error:
        require_java({"JAVA_HOME": home, "PATH": str(tmp_path)})
    assert error.value.reason == "no_java"


def test_the_users_settings_have_the_last_word() -> None:
    made = configuration(SessionOptions(conf={"spark.sql.session.timeZone": "Europe/Oslo"}))
    assert made["spark.sql.session.timeZone"] == "Europe/Oslo"
    assert made["spark.sql.python.filterPushdown.enabled"] == "true"


def test_only_a_local_master_binds_to_this_machine_alone() -> None:
    assert configuration(SessionOptions("local[2]"))["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in configuration(SessionOptions("k8s://https://host:6443"))


def test_only_a_local_master_has_our_worker_daemon() -> None:
    assert configuration(SessionOptions("local[2]"))["spark.python.daemon.module"] == worker_daemon.__name__
    assert "spark.python.daemon.module" not in configuration(SessionOptions("yarn"))
