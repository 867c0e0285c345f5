"""Placement: frozen pack ids and partitions, and the rules behind them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.data.log_records import GOLDEN
from tsdb.model.labels import canonical_labels
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS, FAMILY_SUFFIXES, PlacementRule, metric_family

VECTORS = json.loads((GOLDEN / "v1/hash_vectors.json").read_text())["series"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["series_id"])
def test_pack_id_vectors_stand(vector: dict[str, Any]) -> None:
    place = PlacementRule().place(canonical_labels(vector["labels"]))
    assert place.placement == bytes.fromhex(vector["placement"])
    assert place.family == vector["family"].encode()
    assert place.pack_id == int(vector["pack_id"], 16)
    assert partition_of(place.placement, 18) == vector["partition_of_18"]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        (b"up", b"up"),
        (b"latency_bucket", b"latency"),
        (b"latency_count", b"latency"),
        (b"latency_sum", b"latency"),
        (b"requests_total", b"requests"),
        (b"requests_created", b"requests"),
        (b"x_bucket_sum", b"x_bucket"),  # only one suffix is removed
        (b"_total", b"_total"),  # a suffix alone stays
        (b"totals", b"totals"),
        (b"", b""),
    ],
)
def test_a_family_is_the_name_without_one_suffix(name: bytes, family: bytes) -> None:
    assert metric_family(name) == family


def test_no_suffix_ends_in_another() -> None:
    assert not [(a, b) for a in FAMILY_SUFFIXES for b in FAMILY_SUFFIXES if a != b and a.endswith(b)]


def test_a_histogram_of_one_source_is_one_pack_in_one_partition() -> None:
    names = ["latency_bucket", "latency_sum", "latency_count"]
    places = {
        PlacementRule().place(canonical_labels({"__name__": name, "job": "api", "instance": "a", "le": str(index)}))
        for index, name in enumerate(names)
    }
    assert len(places) == 1


def test_one_source_is_one_placement_and_many_packs() -> None:
    places = [
        PlacementRule().place(canonical_labels({"__name__": name, "job": "api", "instance": "a", "x": name}))
        for name in ("up", "cpu", "memory")
    ]
    assert {place.placement for place in places} == {b"api\xffa"}
    assert len({place.pack_id for place in places}) == 3


@pytest.mark.parametrize(
    ("rule", "placement"),
    [
        (DEFAULT_PLACEMENT_LABELS, b"api\xffa"),
        (("instance", "job"), b"a\xffapi"),
        (("region", "job"), b"\xffapi"),
        (("region",), b"latency"),  # none is present: the family
        ((), b"latency"),
    ],
)
def test_the_rule_names_the_labels_that_place(rule: tuple[str, ...], placement: bytes) -> None:
    labels = canonical_labels({"__name__": "latency_sum", "job": "api", "instance": "a"})
    assert PlacementRule(rule).place(labels).placement == placement
