"""Settings come from flags, variables, a file and defaults, in this order; an unknown key is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tsdb.config import (
    ChunkerSettings,
    GatewaySettings,
    LoaderSettings,
    QuerierSettings,
    StandaloneSettings,
    StoreSettings,
    load,
)
from tsdb.config.common import WorkerSettings
from tsdb.model.errors import InvalidRequest

LOG = {"log": "kafka://broker:9092"}


def refusal(role: type[WorkerSettings], flags: Mapping[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        load(role, flags)
    return caught.value


def toml(folder: Path, text: str) -> str:
    path = folder / "tsdb.toml"
    path.write_text(text)
    return str(path)


def test_flags_beat_variables_these_the_file_and_this_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(tmp_path, 'log_level = "error"\nlog_prefix = "file"\ndrain_s = 3\n')
    monkeypatch.setenv("TSDB_LOG_LEVEL", "debug")
    monkeypatch.setenv("TSDB_LOG_PREFIX", "variable")
    settings = load(StoreSettings, {**LOG, "config": file, "log_prefix": "flag", "http": None})
    assert (settings.log_prefix, settings.log_level, settings.drain_s, settings.lag_enter_s) == (
        "flag",
        "debug",
        3.0,
        5.0,
    )
    assert settings.http == "127.0.0.1:7411"


def test_a_variable_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_CONFIG", toml(tmp_path, 'log = "sqlite:///x"'))
    assert load(GatewaySettings).log == "sqlite:///x"


def test_settings_are_frozen() -> None:
    settings = load(StoreSettings, LOG)
    with pytest.raises(ValidationError, match="frozen"):
        settings.log_level = "debug"


class TestUnknownKeys:
    @pytest.mark.parametrize(
        ("key", "hint"), [("log_levle", "log_level"), ("holdextra_ms", "hold_extra_ms"), ("zzz", None)]
    )
    def test_in_the_file_are_refused_with_the_nearest_known(self, tmp_path: Path, key: str, hint: str | None) -> None:
        error = refusal(StoreSettings, {**LOG, "config": toml(tmp_path, f"{key} = 1")})
        assert error.reason == "unknown_setting"
        assert f"key {key} in {tmp_path}" in error.message
        assert ("did you mean" in error.message) is (hint is not None)
        assert hint is None or f"did you mean {hint}?" in error.message

    def test_in_variables_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TSDB_GPRC", "x")
        error = refusal(StoreSettings, LOG)
        assert error.message == "variable TSDB_GPRC is not a setting; did you mean grpc?"

    def test_as_flags_are_refused(self) -> None:
        assert "flag --hold-extra-m is not" in refusal(StoreSettings, {**LOG, "hold_extra_m": 1}).message

    def test_a_file_for_all_roles_serves_each(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = toml(tmp_path, "lag_enter_s = 1\nlabels_max = 7\n")
        monkeypatch.setenv("TSDB_WORKERS", "3")
        assert load(GatewaySettings, {**LOG, "config": file}).labels_max == 7
        store = load(StoreSettings, {**LOG, "config": file})
        assert (store.lag_enter_s, store.workers) == (1.0, 3)

    @pytest.mark.parametrize(
        "name", ["SERVICE_HOST", "PORT", "STORE_SERVICE_PORT_GRPC", "STORE_PORT_7410_TCP_ADDR", "ADDRESS"]
    )
    def test_variables_of_kubernetes_and_of_the_client_are_passed_over(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(f"TSDB_{name}", "10.0.0.1")
        load(StoreSettings, LOG)


class TestBadValues:
    @pytest.mark.parametrize(
        ("role", "flags", "says"),
        [
            (StoreSettings, {"log": "redis://x"}, "log = 'redis://x'.*neither kafka://.*nor sqlite:///"),
            (StoreSettings, {"log": "kafka://broker"}, "'broker' is not HOST:PORT"),
            (StoreSettings, {}, "log is required: give --log or TSDB_LOG"),
            (StoreSettings, {**LOG, "grpc": "host:99999"}, "grpc = 'host:99999'.*65535"),
            (StoreSettings, {**LOG, "workers": "-1"}, "workers = '-1'.*greater than or equal to 0"),
            (StoreSettings, {**LOG, "time_set": "fast"}, "time_set = 'fast'.*'production', 'demo' or 'brief'"),
            (StoreSettings, {**LOG, "hold_extra_ms": 43_200_001}, "hold_extra_ms.*less than or equal to 43200000"),
            (StoreSettings, {**LOG, "partitions": "8-0"}, "partitions = '8-0'.*such as 0-8"),
            (StoreSettings, {**LOG, "shard": "3/3"}, "shard = '3/3'.*INDEX/COUNT"),
            (StoreSettings, {**LOG, "shard": "0/3", "partitions": "0"}, "partitions and shard: give one"),
            (StoreSettings, {**LOG, "lag_leave_s": 5}, "lag_leave_s 5 must be above lag_enter_s 5"),
            (StoreSettings, {**LOG, "slice_small_ms": 7000}, "slice_large_ms 3600000 must be a multiple.*7000"),
            (StoreSettings, {**LOG, "memory_hard_bytes": 1 << 20}, "memory_hard_bytes 1048576 is below"),
            (GatewaySettings, {**LOG, "inflight_bytes_max": 2048}, "inflight_bytes_max 2048 is below"),
            (QuerierSettings, {**LOG, "stores": "h:1", "history": "mysql://x"}, "history = 'mysql://x'.*cassandra://"),
            (GatewaySettings, {**LOG, "tls_cert_file": "x"}, "tls_cert_file and tls_key_file go together"),
            (GatewaySettings, {**LOG, "tls_client_ca_file": "x"}, "tls_client_ca_file needs"),
            (GatewaySettings, {**LOG, "kafka_sasl_mechanism": "PLAIN"}, "do not fit together"),
            (GatewaySettings, {**LOG, "kafka_security_protocol": "SASL_SSL"}, "do not fit together"),
            (GatewaySettings, {**LOG, "kafka_ssl_ca_file": "x"}, "need SSL or SASL_SSL"),
            (GatewaySettings, {**LOG, "log_prefix": "a b"}, "log_prefix = 'a b'"),
        ],
    )
    def test_are_refused_with_key_value_and_legal_range(
        self, role: type[WorkerSettings], flags: Mapping[str, Any], says: str
    ) -> None:
        error = refusal(role, flags)
        assert error.reason == "bad_setting"
        with pytest.raises(InvalidRequest, match=f"(?s){says}"):
            raise error

    def test_all_of_them_are_listed_at_once(self) -> None:
        error = refusal(StoreSettings, {**LOG, "workers": -1, "grpc": "x"})
        assert "workers" in error.message
        assert "grpc" in error.message

    @pytest.mark.parametrize("content", [None, "log = ", "\udcff"])
    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path, content: str | None) -> None:
        path = tmp_path / "broken.toml"
        if content is not None:
            path.write_bytes(content.encode("utf-8", "surrogateescape"))
        error = refusal(StoreSettings, {**LOG, "config": str(path)})
        assert (error.reason, "broken.toml" in error.message) == ("config_file", True)


class TestSecrets:
    @pytest.mark.parametrize("key", ["token", "kafka_sasl_password"])
    def test_are_refused_as_flags_and_in_the_file_without_being_shown(self, tmp_path: Path, key: str) -> None:
        flag = refusal(StoreSettings, {**LOG, key: "hunter2"})
        file = refusal(StoreSettings, {**LOG, "config": toml(tmp_path, f'{key} = "hunter2"')})
        assert (flag.reason, file.reason) == ("secret_in_flag", "secret_in_file")
        assert f"TSDB_{key.upper()} or {key}_file" in flag.message
        assert "hunter2" not in flag.message + file.message

    def test_come_from_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TSDB_TOKEN", "hunter2")
        token = load(StoreSettings, LOG).token
        assert token is not None
        assert token.get_secret_value() == "hunter2"

    def test_are_not_in_the_text_of_other_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TSDB_KAFKA_SASL_PASSWORD", "hunter2")
        monkeypatch.setenv("TSDB_TOKEN", "hunter2")
        error = refusal(StoreSettings, {**LOG, "workers": "-1", "kafka_sasl_password_file": "x"})
        assert "hunter2" not in error.message
        assert error.__cause__ is None


class TestStandalone:
    def test_keeps_its_log_in_its_folder(self, tmp_path: Path) -> None:
        assert load(StandaloneSettings, {"data_dir": str(tmp_path)}).log == f"sqlite:///{tmp_path}/log.sqlite"

    def test_takes_another_log_when_told(self) -> None:
        assert load(StandaloneSettings, LOG).log == LOG["log"]

    def test_has_the_settings_of_every_role(self) -> None:
        settings = load(StandaloneSettings, {"time_set": "demo", "workers": 2, "labels_max": 9})
        assert (settings.times.window_ms, settings.workers, settings.labels_max) == (30_000, 2, 9)


@pytest.mark.parametrize("role", [ChunkerSettings, LoaderSettings])
def test_a_drain_beyond_the_groups_patience_is_refused_at_the_start(role: type[WorkerSettings]) -> None:
    more = {"history": "sqlite:///h.db"} if role is LoaderSettings else {}
    assert load(role, {**LOG, **more, "drain_s": 299}).drain_s == 299
    error = refusal(role, {**LOG, **more, "drain_s": 300})
    assert error.reason == "bad_setting"
    assert "drain_s is 300" in error.message
    assert "expels it after 300 s" in error.message
    assert load(role, {"log": "sqlite:///x", **more, "drain_s": 300}).drain_s == 300
