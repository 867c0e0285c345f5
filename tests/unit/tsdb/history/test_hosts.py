"""URLs of histories are parsed, or refused with a reason."""

from __future__ import annotations

import pytest

from tsdb.history.open import open_history, open_history_admin
from tsdb.history.settings import Hosts
from tsdb.model.errors import ConfigMismatch


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("cassandra://db/metrics", Hosts(("db",), 9042, "metrics")),
        ("cassandra://10.0.0.1:1234,db-2.local:1234/m_1/", Hosts(("10.0.0.1", "db-2.local"), 1234, "m_1")),
    ],
)
def test_hosts_port_and_keyspace_are_taken_from_the_url(url: str, hosts: Hosts) -> None:
    assert Hosts.parse(url) == hosts


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("cassandra://db", "no keyspace"),
        ("cassandra://db/", "no keyspace"),
        ("cassandra://db/Upper", "no keyspace"),
        ("cassandra://db/a;drop", "no keyspace"),
        ("cassandra:///metrics", "not host"),
        ("cassandra://a:1,b:2/metrics", "one port"),
        ("cassandra://a b/metrics", "not host"),
        ("sqlite:///", "neither a cluster nor a file"),
        ("kafka://db/metrics", "neither a cluster nor a file"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason(url: str, why: str) -> None:
    for opening in (open_history, open_history_admin):
        with pytest.raises(ConfigMismatch, match=why) as refused:
            opening(url)
        assert refused.value.reason == "history_url"
