"""A shadow that cannot be is refused by name at the start; one that is away is no obstacle."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fakes.fake_reader import TOPIC_ID, FakeServer
from tsdb.config import QuerierSettings, load
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.roles.shadow import make_shadow

PORT = 7410


def settings(**given: object) -> QuerierSettings:
    return load(QuerierSettings, {"log": "kafka://h:9092", "stores": "h:7410"} | given)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_the_own_address_is_refused(host: str) -> None:
    with pytest.raises(ConfigMismatch, match="is the address of this querier") as refused:
        make_shadow(settings(shadow=f"{host}:{PORT}"), TOPIC_ID, PORT)
    assert refused.value.reason == "shadow_self"


def test_another_log_is_refused_with_both_topic_ids() -> None:
    with FakeServer() as server, pytest.raises(ConfigMismatch, match=f"{TOPIC_ID}, that of this querier is mine") as no:
        make_shadow(settings(shadow=server.address), "mine", PORT)
    assert no.value.reason == "shadow_log"


def test_a_shadow_of_the_same_log_and_one_that_is_away_are_taken() -> None:
    with FakeServer() as server:
        for address in (server.address, "127.0.0.1:1", "no-such-host.invalid:7410"):
            shadow = make_shadow(settings(shadow=address, share="5%"), TOPIC_ID, PORT)
            assert shadow is not None
            shadow.close()
            assert shadow.join(5.0)


def test_without_an_address_there_is_no_shadow() -> None:
    assert make_shadow(settings(), TOPIC_ID, PORT) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"share": "0%"}, "share.*percentage"),
        ({"share": "101%"}, "share.*percentage"),
        ({"share": "5"}, "share.*percentage"),
        ({"shadow": "host"}, "shadow.*HOST:PORT"),
        ({"shadow": "host:0"}, "no port to connect to"),
        ({"shadow_tls_ca_file": "/ca"}, "needs shadow_tls"),
        ({"shadow_bytes_max": 1}, "shadow_bytes_max"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        settings(**given)


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = {"shadow": "127.0.0.1:1", "shadow_dir": str(tmp_path / "file" / "folder")}
    with pytest.raises(ConfigMismatch, match="shadow_dir"):
        make_shadow(settings(**given), TOPIC_ID, PORT)
