"""An experiment refuses production's address, and has a client id at the brokers that production does not share."""

from __future__ import annotations

from typing import Any

import pytest

from tsdb.config import QuerierSettings, StoreSettings, load
from tsdb.config.types import HostPort
from tsdb.model.errors import ConfigMismatch
from tsdb.roles.log import log_settings
from tsdb.roles.trials.experiment import check_address


def settings(**given: Any) -> StoreSettings:
    return load(StoreSettings, {"log": "kafka://h:9092", "experiment": "trial"} | given)


@pytest.mark.parametrize(
    ("listen", "production"),
    [
        ("127.0.0.1:7410", "127.0.0.1:7410"),
        ("127.0.0.1:7410", "localhost:7410"),
        ("0.0.0.0:7410", "other.invalid:7410,localhost:7410"),
        ("localhost:7410", "127.0.0.1:7410"),
    ],
)
def test_the_address_of_production_is_refused_by_name(listen: str, production: str) -> None:
    fields = settings(grpc=listen, production=production)
    with pytest.raises(ConfigMismatch, match=f"experiment trial listens at {listen}, and .* of production leads") as no:
        check_address(fields, fields.grpc_listen)
    assert no.value.reason == "experiment_address"


@pytest.mark.parametrize("production", ["", "127.0.0.1:7411", "127.0.0.2:7410", "store.invalid:7410"])
def test_another_address_is_taken(production: str) -> None:
    check_address(settings(production=production), HostPort("127.0.0.1", 7410))


def test_an_experiment_has_its_own_client_id() -> None:
    assert log_settings(settings()).client_id == "tsdb-experiment-trial"
    querier = load(QuerierSettings, {"log": "kafka://h:9092", "stores": "h:1", "experiment": "other"})
    assert log_settings(querier).client_id == "tsdb-experiment-other"
    assert log_settings(settings(experiment="")).client_id == "tsdb"
