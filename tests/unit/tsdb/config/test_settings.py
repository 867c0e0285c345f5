"""Settings in the form that the rest of the system takes, and as people see them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tsdb.config import (
    ROLES,
    CommonSettings,
    RulerSettings,
    StandaloneSettings,
    StoreSettings,
    effective,
    flags,
    load,
)
from tsdb.config.common import HistoryFields, ProcessSettings, WorkerSettings
from tsdb.config.reference import render
from tsdb.config.types import HostPort, host_port, partition_ranges, shard_of
from tsdb.model import defaults
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import SliceLengths
from tsdb.ops.logs import LEVELS

ROOT = Path(__file__).resolve().parents[4]
LOG = {"log": "kafka://broker:9092"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", HostPort("127.0.0.1", 0)),
        ("store-0.store:7410", HostPort("store-0.store", 7410)),
        ("[::1]:7410", HostPort("::1", 7410)),
    ],
)
def test_addresses(text: str, expected: HostPort) -> None:
    assert host_port(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "host", "host:", "host:x", "host:65536", "::1:7410", "a b:1", "[x]:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        host_port(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("LOCALHOST", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.7", "fe80::1", "store-0", "localhost.example")],
)
def test_only_loopback_addresses_stay_on_this_machine(host: str, loopback: bool) -> None:
    assert HostPort(host, 7410).is_loopback == loopback


@pytest.mark.parametrize(
    ("text", "expected"), [("3", (3,)), ("0-3", (0, 1, 2, 3)), ("7, 0-1,1", (0, 1, 7)), ("4-4", (4,))]
)
def test_partition_ranges(text: str, expected: tuple[int, ...]) -> None:
    assert partition_ranges(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "3-1", "a", "0-", "1,,2", "0-999999"])
def test_what_is_no_partition_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partitions"):
        partition_ranges(text)


@pytest.mark.parametrize("text", ["", "1", "2/2", "0/0", "-1/2", "a/b"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="INDEX/COUNT"):
        shard_of(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0, 1, 2, 3, 4)),
        ({"partitions": "1-2,4"}, (1, 2, 4)),
        ({"shard": "0/2"}, (0, 2, 4)),
        ({"shard": "1/2"}, (1, 3)),
        ({"shard": "6/9"}, ()),
    ],
)
def test_chosen_partitions_of_a_log_of_five(given: dict[str, str], expected: tuple[int, ...]) -> None:
    assert load(StoreSettings, {**LOG, **given}).chosen_partitions(5) == expected


def test_a_partition_that_the_log_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"partition 5 does not exist; the log has 0-4"):
        load(StoreSettings, {**LOG, "partitions": "3-5"}).chosen_partitions(5)


def test_memory_is_shared_equally_and_a_share_too_small_is_refused() -> None:
    given = {**LOG, "memory_soft_bytes": 6 << 20, "memory_hard_bytes": 8 << 20}
    assert load(StoreSettings, given).memory_shares(4) == (3 << 19, 2 << 20)
    assert load(StoreSettings, given).memory_shares(8)[1] == 1 << 20
    with pytest.raises(ValueError, match=r"memory_hard_bytes 8388608 over 9 partitions is 932067 each.*hold fewer"):
        load(StoreSettings, given).memory_shares(9)


def test_shards_cover_every_partition_once() -> None:
    shards = [load(StoreSettings, {**LOG, "shard": f"{i}/7"}).chosen_partitions(18) for i in range(7)]
    assert sorted(partition for shard in shards for partition in shard) == list(range(18))


def test_slices_and_hold_follow_the_time_set_unless_given() -> None:
    demo = load(StoreSettings, {**LOG, "time_set": "demo", "slice_large_ms": 4000, "hold_extra_ms": 1000})
    assert demo.slices(demo.times) == SliceLengths(2000, 4000)
    assert demo.hold_ms(demo.times) == 91_000
    production = load(StoreSettings, LOG)
    assert production.slices(production.times) == SliceLengths(600_000, 3_600_000)


def test_a_shared_default_is_that_of_a_setting_and_of_a_part() -> None:
    names = {name for name in vars(defaults) if name.isupper()}
    used = {"config": set[str](), "parts": set[str]()}
    for room in (ROOT / "tsdb", ROOT / "ingest"):
        for file in room.rglob("*.py"):
            where = "config" if file.is_relative_to(ROOT / "tsdb" / "config") else "parts"
            used[where] |= set(re.findall(r"\bdefaults\.([A-Z_]+)", file.read_text()))
    assert used == {"config": names, "parts": names}


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES.keys())
class TestFlags:
    def test_all_settings_but_secrets_are_flags_with_help(self, role: type[ProcessSettings]) -> None:
        named = {flag.field: flag for flag in flags(role)}
        secrets = {name for name, field in role.model_fields.items() if field.annotation == SecretStr | None}
        wanted = {"token"}
        wanted |= {"kafka_sasl_password"} if issubclass(role, WorkerSettings) else set()
        wanted |= {"cassandra_password"} if issubclass(role, HistoryFields) else set()
        assert secrets >= wanted
        assert set(role.model_fields) - set(named) == secrets
        assert all(flag.help.endswith(".") and flag.name == field.replace("_", "-") for field, flag in named.items())

    def test_defaults_as_text_load_as_the_defaults(self, role: type[ProcessSettings]) -> None:
        texts = {flag.field: flag.default for flag in flags(role) if flag.default}
        servers = dict.fromkeys(("stores", "gateway", "querier"), "localhost:7410")
        targets = {"log": LOG["log"], "rules": "rules.yaml", **servers}
        required = {name: value for name, value in targets.items() if name in role.model_fields}
        given: dict[str, Any] = {**texts, **required}
        assert effective(load(role, given)) == effective(load(role, required))


def test_a_role_has_the_settings_of_what_it_opens_alone() -> None:
    fields = {name: set(role.model_fields) for name, role in ROLES.items()}
    parts = {"history": "history", "grpc_running_max": "gRPC", "log": "log"}
    found = {name: {part for field, part in parts.items() if field in known} for name, known in fields.items()}
    assert found == {
        "gateway": {"log", "gRPC"},
        "store": {"log", "gRPC"},
        "chunker": {"log"},
        "loader": {"log", "history"},
        "querier": {"log", "gRPC", "history"},
        "ruler": {"log", "history"},
        "canary": set(),
        "standalone": {"log", "gRPC", "history"},
    }
    of_history = {name for name in CommonSettings.model_fields if name.startswith(("history", "cassandra_"))}
    assert all(not fields[name] & of_history for name in ("gateway", "store", "chunker", "canary"))


def test_log_levels_are_those_of_the_logger() -> None:
    (choices,) = [flag.choices for flag in flags(StoreSettings) if flag.field == "log_level"]
    assert choices == LEVELS


def test_effective_settings_are_json_with_secrets_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_TOKEN", "hunter2")
    settings = load(StandaloneSettings, {"token_file": "/etc/tokens"})
    shown = effective(settings)
    assert (shown["token"], shown["token_file"], shown["kafka_sasl_password"]) == ("***", "/etc/tokens", None)
    assert "hunter2" not in json.dumps(shown) + repr(settings) + str(settings) + settings.model_dump_json()


def test_the_reference_is_current() -> None:
    committed = Path(__file__).resolve().parents[4] / "docs" / "config.md"
    assert committed.read_text() == render(), "run `make docs`"


@pytest.mark.parametrize(
    ("labels", "problem"),
    [("cluster", "is not NAME=VALUE"), ("a-b=c", "is not NAME=VALUE"), ("a=b,a=c", "a name is given twice")],
)
def test_external_labels_of_alerts_are_names_and_values(labels: str, problem: str) -> None:
    given = {"log": LOG["log"], "stores": "localhost:7410", "rules": "rules.yaml", "rules_external_labels": labels}
    with pytest.raises(InvalidRequest, match=problem):
        load(RulerSettings, given)
    assert load(RulerSettings, {**given, "rules_external_labels": "a=b=c,d="}).external_labels == {"a": "b=c", "d": ""}
