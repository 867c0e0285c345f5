"""The name of an experiment is a DNS label; the addresses of production are refused without one."""

from __future__ import annotations

from typing import Any

import pytest

from tsdb.config import QuerierSettings, StoreSettings, load
from tsdb.model.errors import InvalidRequest

STORE = {"log": "kafka://h:9092"}


@pytest.mark.parametrize("name", ["", "a", "smaller-slices", "v2", "a" * 40])
def test_a_dns_label_is_a_name(name: str) -> None:
    assert load(StoreSettings, STORE | {"experiment": name}).experiment == name
    assert load(QuerierSettings, STORE | {"stores": "h:1", "experiment": name}).experiment == name


@pytest.mark.parametrize("name", ["A", "-a", "a-", "a_b", "a.b", "a b", "a" * 41, "\u00e4", "a\n"])
def test_other_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"experiment.*DNS label of at most 40 characters"):
        load(StoreSettings, STORE | {"experiment": name})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"production": "h:7410"}, "production needs experiment"),
        ({"production": "h", "experiment": "a"}, "production.*HOST:PORT"),
        ({"production": "h:0", "experiment": "a"}, "no port to connect to"),
    ],
)
def test_addresses_of_production_are_checked(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        load(StoreSettings, STORE | given)
