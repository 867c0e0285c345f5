"""An impossible shadow is refused by name at the start. An unreachable shadow does not stop the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fakes.fake_reader import TOPIC_ID, FakeServer
from tsdb.config import QuerierSettings, load
from tsdb.config.types import HostPort
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.query.stores.pool import StoreAddress
from tsdb.roles.trials.shadow import make_shadow

PORT = 7410
LISTEN = HostPort("127.0.0.1", PORT)


def settings(**given: object) -> QuerierSettings:
    return load(QuerierSettings, {"log": "kafka://h:9092", "stores": "h:7410"} | given)


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "localhost"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_own_address_is_refused(host: str, listen: str) -> None:
    with pytest.raises(ConfigMismatch, match="is the address of this querier") as refused:
        make_shadow(settings(shadow=f"{host}:{PORT}"), TOPIC_ID, HostPort(listen, PORT))
    assert refused.value.reason == "shadow_self"


def test_another_address_of_this_machine_is_taken() -> None:
    shadow = make_shadow(settings(shadow=f"127.0.0.2:{PORT}"), TOPIC_ID, LISTEN)
    assert shadow is not None
    shadow.close()
    assert shadow.join(60.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_store_that_the_querier_reads_is_refused_under_each_of_its_names(host: str) -> None:
    stores = [StoreAddress("stores.invalid", 7410), StoreAddress("localhost", 7420)]
    with pytest.raises(ConfigMismatch, match=f"{host}:7420 is localhost:7420, a store that this querier reads") as no:
        make_shadow(settings(shadow=f"{host}:7420"), TOPIC_ID, LISTEN, stores)
    assert no.value.reason == "shadow_production"


def test_another_log_is_refused_with_both_topic_ids() -> None:
    with FakeServer() as server, pytest.raises(ConfigMismatch, match=f"{TOPIC_ID}, that of this querier is mine") as no:
        make_shadow(settings(shadow=server.address), "mine", LISTEN)
    assert no.value.reason == "shadow_log"


def test_a_shadow_of_the_same_log_and_one_that_is_away_are_taken() -> None:
    with FakeServer() as server:
        for address in (server.address, "127.0.0.1:1", "no-such-host.invalid:7410"):
            shadow = make_shadow(settings(shadow=address, share="5%"), TOPIC_ID, LISTEN)
            assert shadow is not None
            shadow.close()
            assert shadow.join(60.0)


def test_without_an_address_there_is_no_shadow() -> None:
    assert make_shadow(settings(), TOPIC_ID, LISTEN) is None


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
        make_shadow(settings(**given), TOPIC_ID, LISTEN)
