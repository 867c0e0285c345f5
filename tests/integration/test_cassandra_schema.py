"""The tables of history in a real Cassandra: made, compared, and refused by name when they differ."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from stack.cassandra import NodeAccess
from support.servers.histories import META, row, written
from tsdb.history.cassandra.session import open_cluster
from tsdb.history.cassandra.tables import prepare
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.history.shared_settings import HistoryAdmin, history_differences, shared_rows
from tsdb.model.errors import ConfigMismatch, Unavailable


@pytest.fixture
def url(cassandra: NodeAccess) -> str:
    return f"cassandra://{cassandra.host}:{cassandra.port}/k{uuid.uuid4().hex[:12]}"


@pytest.fixture
def admin(url: str) -> Iterator[HistoryAdmin]:
    with open_history_admin(url) as admin:
        yield admin


@pytest.fixture
def session(url: str, admin: HistoryAdmin) -> Iterator[Session]:
    cluster = open_cluster(Hosts.parse(url), HistorySettings(write_timeout_s=60.0))
    session = cluster.connect()
    try:
        yield session
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {Hosts.parse(url).keyspace}")
        cluster.shutdown()


def make(admin: HistoryAdmin, ttl_days: int | None = None) -> None:
    assert admin.create(shared_rows(META), replication=1, ttl_days=ttl_days)


def test_every_difference_of_a_table_is_named(url: str, admin: HistoryAdmin, session: Session) -> None:
    keyspace = Hosts.parse(url).keyspace
    make(admin)
    assert history_differences(admin, META) == []
    session.execute(f"ALTER TABLE {keyspace}.holes DROP accepted")
    session.execute(f"ALTER TABLE {keyspace}.chunks ADD extra text")
    session.execute(f"ALTER TABLE {keyspace}.chunks WITH compression = {{'class': 'LZ4Compressor'}}")
    session.execute(f"DROP TABLE {keyspace}.metric_names")
    session.execute(f"DROP TABLE {keyspace}.loaded")
    session.execute(
        f"CREATE TABLE {keyspace}.loaded (topic_id text, partition int, position bigint,"
        " emitted_through_ms bigint, PRIMARY KEY (partition, topic_id))"
    )
    assert history_differences(admin, META) == [
        "table chunks: column extra is text, must be absent",
        "table chunks: the server compresses it, must not",
        "table metric_names is missing: run `tsdb history create`",
        "table loaded: column partition is int (partition key 0), must be int (clustering 0)",
        "table loaded: column topic_id is text (clustering 0), must be text (partition key 0)",
        "table holes: column accepted is missing, must be boolean",
    ]


def test_what_was_not_made_says_how_to_make_it(url: str, admin: HistoryAdmin, session: Session) -> None:
    assert "tsdb history create" in history_differences(admin, META)[0]
    with open_history(url) as store:
        for _ in range(2):
            with pytest.raises(ConfigMismatch, match="tsdb history create") as refused:
                written(lambda done: store.write(row(1, 0).key, b"", done))
            assert refused.value.reason == "store_not_created"


def test_shared_settings_lost_are_named(url: str, admin: HistoryAdmin, session: Session) -> None:
    make(admin)
    session.execute(f"TRUNCATE {Hosts.parse(url).keyspace}.shared")
    assert history_differences(admin, META) == ["no shared settings are there: run `tsdb history create`"]


def test_a_ttl_goes_with_compaction_by_time(url: str, admin: HistoryAdmin, session: Session) -> None:
    make(admin, ttl_days=90)
    keyspace = Hosts.parse(url).keyspace
    rows = session.execute(
        "SELECT table_name, default_time_to_live, compaction FROM system_schema.tables WHERE keyspace_name = %s",
        (keyspace,),
    )
    found = {name: (ttl, dict(compaction)) for name, ttl, compaction in rows}
    assert found["chunks"][0] == 90 * 86400
    assert found["series"][0] == found["metric_names"][0] == 150 * 86400
    assert found["loaded"][0] == found["holes"][0] == found["shared"][0] == 0
    assert found["chunks"][1]["class"].endswith("TimeWindowCompactionStrategy")
    assert found["chunks"][1]["compaction_window_size"] == "3"
    assert found["loaded"][1]["class"].endswith("UnifiedCompactionStrategy")
    assert history_differences(admin, META) == []


def test_copies_that_a_cluster_does_not_have_are_unavailable_not_lost(
    url: str, admin: HistoryAdmin, session: Session
) -> None:
    assert admin.create(shared_rows(META), replication=1)
    session.execute(
        f"ALTER KEYSPACE {Hosts.parse(url).keyspace} WITH replication ="
        " {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    )
    with open_history(url) as store, pytest.raises(Unavailable):
        written(lambda done: store.write(row(1, 0).key, b"", done))


def test_statements_name_the_row_whose_replica_is_asked_and_may_be_asked_twice(
    url: str, admin: HistoryAdmin, session: Session
) -> None:
    make(admin)
    hosts = Hosts.parse(url)
    prepared = prepare(session, hosts.keyspace)
    for one in (prepared.put_chunk, prepared.read_chunks, prepared.put_series, prepared.read_series):
        assert one.is_idempotent
        assert len(one.routing_key_indexes) >= 2
    assert prepared.put_chunk.routing_key_indexes == [0, 1]
    # The driver would refresh its schema with an event, seconds later.
    session.cluster.refresh_keyspace_metadata(hosts.keyspace)
    (replica,) = session.cluster.metadata.get_replicas(
        hosts.keyspace, prepared.put_chunk.bind((1, 0, 0, 0, 0, 0, b"")).routing_key
    )
    assert replica.address == hosts.names[0]
