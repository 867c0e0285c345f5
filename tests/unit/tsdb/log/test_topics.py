"""Topic specs, and how a difference is found."""

from __future__ import annotations

import pytest

from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, META, METADATA, METRICS, SERIES
from tsdb.log.topics import DAY_MS, Difference, TopicSpec, TopicState, differences, topic_specs

SPEC = TopicSpec("t", 3, 3, {"cleanup.policy": "compact,delete"}, {"retention.ms": 1000})


def state(**changes: object) -> TopicState:
    values: dict[str, object] = {
        "topic_id": "id",
        "partitions": 3,
        "replication": 3,
        "config": {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
    }
    return TopicState(**{**values, **changes})  # type: ignore[arg-type]  # as named above


def test_specs_are_those_of_the_design() -> None:
    specs = {spec.name: spec for spec in topic_specs(18)}
    assert list(specs) == [METRICS, SERIES, CHUNKS, CHUNKS_DLQ, META, METADATA]
    kept = {name: (spec.exact["cleanup.policy"], spec.least.get("retention.ms")) for name, spec in specs.items()}
    assert kept == {
        METRICS: ("delete", 5 * DAY_MS),
        SERIES: ("compact,delete", 90 * DAY_MS),
        CHUNKS: ("compact,delete", 60 * DAY_MS),
        CHUNKS_DLQ: ("delete", 14 * DAY_MS),
        META: ("compact", None),
        METADATA: ("compact", None),
    }
    assert {spec.partitions for spec in specs.values() if spec.name not in (META, METADATA)} == {18}
    assert specs[META].partitions == specs[METADATA].partitions == 1
    for spec in specs.values():
        assert (spec.replication, spec.least["min.insync.replicas"]) == (3, 2)
        assert spec.exact["message.timestamp.type"] == "LogAppendTime"
        assert spec.exact["unclean.leader.election.enable"] == "false"


@pytest.mark.parametrize(
    ("claim", "got", "want"),
    [
        ("equal", state(), []),
        ("order of words", state(config={"cleanup.policy": "delete,compact", "retention.ms": "1000"}), []),
        ("more", state(replication=5, config={"cleanup.policy": "compact,delete", "retention.ms": "1001"}), []),
        ("no limit", state(config={"cleanup.policy": "compact,delete", "retention.ms": "-1"}), []),
        ("not replicated at all", state(replication=None), []),
        ("missing", None, [Difference("t", "topic", "missing", "there")]),
        ("more partitions", state(partitions=4), [Difference("t", "partitions", "4", "3")]),
        ("fewer replicas", state(replication=2), [Difference("t", "replication factor", "2", "3 or more")]),
        (
            "unset and too little",
            state(config={"retention.ms": "999"}),
            [
                Difference("t", "cleanup.policy", "unset", "compact,delete"),
                Difference("t", "retention.ms", "999", "1000 or more"),
            ],
        ),
        (
            "not a number",
            state(config={"cleanup.policy": "compact,delete", "retention.ms": "soon"}),
            [Difference("t", "retention.ms", "soon", "1000 or more")],
        ),
    ],
)
def test_differences_are_named(claim: str, got: TopicState | None, want: list[Difference]) -> None:
    assert differences(SPEC, got) == want, claim
