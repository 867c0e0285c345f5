from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from support.data.announcements import Labels, announced
from tsdb.index.cardinality import By
from tsdb.index.index import SeriesIndex
from tsdb.model.labels import canonical_labels, parse_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.selector.selectors import parse_selector

SEED = 7
RULE = PlacementRule()


def made_of(labels: Sequence[Labels]) -> SeriesIndex:
    index = SeriesIndex()
    index.register(*announced(labels))
    return index


def random_series(count: int, seed: int) -> list[Labels]:
    """Distinct series with few metrics, many instances, and some without a placement label."""
    chance = random.Random(seed)
    found: dict[bytes, Labels] = {}
    while len(found) < count:
        labels = {
            "__name__": chance.choice(("up", "load", "http_seconds_bucket", "http_seconds_count", "http_seconds"))
        }
        for name, values in (("job", 3), ("instance", 40), ("path", 300), ("le", 5)):
            if chance.random() < 0.7:
                labels[name] = f"{name}-{chance.randrange(values)}"
        found[canonical_labels(labels)] = labels
    return list(found.values())


def source_of(labels: Labels) -> bytes:
    """Canonical placement labels, or the metric family."""
    placed = {name: labels[name] for name in RULE.labels if name in labels}
    return canonical_labels(placed or {"__name__": RULE.place(canonical_labels(labels)).family.decode()})


def oracle(series: Sequence[Labels], by: By) -> Counter[bytes]:
    """Number of series of each group, or by label of each label value."""
    tally: Counter[bytes] = Counter()
    for labels in series:
        if by is By.SOURCE:
            tally[source_of(labels)] += 1
            continue
        for name, value in labels.items():
            if by is not By.METRIC or name == "__name__":
                tally[f"{name}".encode() + b"\xff" + value.encode()] += 1
    return tally


def counted(index: SeriesIndex, by: By, selector: str | None = None) -> dict[bytes, int]:
    """Series of each group by its labels."""
    found = index.cardinality(by, parse_selector(selector) if selector else None, SEED)
    groups = found.groups(by, RULE.labels)
    kind = By.PAIR if by is By.LABEL else by
    names = found.names(kind, RULE.labels, groups.hashes)
    assert len(names) == len(groups.hashes) == len(set(groups.hashes.tolist()))
    return {
        names[number]: series for number, series in zip(groups.hashes.tolist(), groups.series.tolist(), strict=True)
    }


@pytest.mark.parametrize("by", By)
@pytest.mark.parametrize("selector", [None, '{job=~"job-[01]"}', '{path="path-1"}'])
def test_groups_are_counted_exactly(by: By, selector: str | None) -> None:
    series = random_series(2_000, seed=3)
    chosen = [
        one
        for one in series
        if selector is None
        or (selector.startswith("{job") and one.get("job") in ("job-0", "job-1"))
        or (selector.startswith("{path") and one.get("path") == "path-1")
    ]
    assert counted(made_of(series), by, selector) == dict(oracle(chosen, by))


@pytest.mark.parametrize("by", By)
def test_forgotten_series_are_not_counted(by: By) -> None:
    series = random_series(500, seed=4)
    index = made_of(series)
    gone = series[::3]
    ids = np.array([series_id(canonical_labels(labels)) for labels in gone], np.uint64)
    index.forget(index.refs_of(ids))
    left = [labels for labels in series if labels not in gone]
    assert counted(index, by) == dict(oracle(left, by))
    index.compact()
    assert counted(index, by) == dict(oracle(left, by))


def test_a_value_belongs_to_the_name_of_its_label() -> None:
    series = random_series(300, seed=5)
    found = made_of(series).cardinality(By.LABEL, None, SEED)
    groups = found.groups(By.LABEL, RULE.labels)
    assert groups.owners is not None
    names = found.names(By.LABEL, RULE.labels, groups.owners)
    texts = found.names(By.PAIR, RULE.labels, groups.hashes)
    for number, owner in zip(groups.hashes.tolist(), groups.owners.tolist(), strict=True):
        assert parse_labels(texts[number])[0][0].encode() == names[owner]


def test_hashes_are_the_same_in_every_index_and_differ_by_seed() -> None:
    series = random_series(200, seed=6)
    for by in By:
        groups = [made_of(one).cardinality(by, None, SEED).groups(by, RULE.labels) for one in (series, series[::-1])]
        assert sorted(groups[0].hashes.tolist()) == sorted(groups[1].hashes.tolist())
        other = made_of(series).cardinality(by, None, SEED + 1).groups(by, RULE.labels)
        assert not set(groups[0].hashes.tolist()) & set(other.hashes.tolist())


def test_the_series_of_a_family_are_one_source_and_never_one_with_a_placement_label() -> None:
    series = [
        {"__name__": "a_count"}, {"__name__": "a_bucket", "le": "1"}, {"__name__": "b"}, {"__name__": "c", "job": "a"},
    ]  # fmt: skip
    assert counted(made_of(series), By.SOURCE) == {b"__name__\xffa": 2, b"__name__\xffb": 1, b"job\xffa": 1}


def test_an_empty_index_has_no_groups() -> None:
    for by in By:
        assert counted(SeriesIndex(), by) == {}
