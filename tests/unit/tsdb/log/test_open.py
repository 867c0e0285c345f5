"""Log URLs and settings: what is refused, and that secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsdb.log.kafka import config
from tsdb.log.open import open_log, open_topics
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.log.topics import create_topics, topic_specs
from tsdb.model.errors import ConfigMismatch


@pytest.mark.parametrize(
    "url", ["", "kafka://", "kafka://host", "kafka://host:port", "kafka://a:1,b", "sqlite:///", "sqlite://x", "x.db"]
)
def test_a_bad_url_is_refused_with_the_expected_form(url: str) -> None:
    for opening in (open_log, open_topics):
        with pytest.raises(ConfigMismatch, match="want kafka://host:port") as refused:
            opening(url)
        assert refused.value.reason == "log_url"


def test_making_topics_makes_the_folder_of_an_embedded_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a/b/log.db"
    with open_topics(url) as admin:
        assert admin.describe("metrics") is None
        assert not (tmp_path / "a").exists()
        create_topics(admin, topic_specs(1, replication=1))
        assert admin.describe("metrics") is not None
    with open_log(url) as log:
        assert log.partitions("metrics") == 1


@pytest.mark.parametrize(
    ("name", "why"), [("absent.db", "does not exist"), ("folder", "is not a file"), ("empty.db", "holds no log")]
)
def test_an_embedded_log_that_is_not_there_is_named_and_not_made(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.db").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigMismatch, match=why) as refused:
        open_log(f"sqlite:///{tmp_path}/{name}")
    assert refused.value.reason == "log_missing"
    assert str(tmp_path / name) in refused.value.message
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delivery_timeout_s", 0),
        ("request_timeout_s", -1),
        ("queue_bytes_max", 0),
        ("linger_ms", -1),
        ("linger_ms", 10_000),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigMismatch, match=name):
        LogSettings(**{name: value})  # type: ignore[arg-type]  # the names above are fields


def test_secrets_are_in_no_repr() -> None:
    security = KafkaSecurity("SASL_SSL", "SCRAM-SHA-512", "me", sasl_password="s3cret", ssl_key_password="k3y")
    text = repr(LogSettings(security=security))
    assert "s3cret" not in text
    assert "k3y" not in text


def test_security_reaches_the_client_library(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from-file\n")
    security = KafkaSecurity(
        "SASL_SSL",
        "PLAIN",
        "me",
        sasl_password="unused",
        sasl_password_file=str(tmp_path / "password"),
        ssl_ca_location="/ca.pem",
    )
    made = config.common("host:1", LogSettings(security=security))
    wanted = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "from-file",
        "ssl.ca.location": "/ca.pem",
    }
    assert {key: value for key, value in made.items() if key.startswith(("security", "sasl", "ssl"))} == wanted


def test_a_password_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match="sasl_password_file"):
        config.common("host:1", LogSettings(security=KafkaSecurity(sasl_password_file=str(tmp_path / "none"))))


def test_order_is_kept_without_idempotence_by_one_request_at_a_time() -> None:
    made = config.producer("host:1", LogSettings(idempotence=False))
    assert (made["enable.idempotence"], made["max.in.flight.requests.per.connection"]) == (False, 1)
    assert config.producer("host:1", LogSettings())["enable.idempotence"] is True
