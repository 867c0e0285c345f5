from __future__ import annotations

import pytest

from support.data.announcements import announced
from tsdb.index.index import SeriesIndex
from tsdb.index.matching import BITMAPS_MAX
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.selector.selectors import matchers_of

SERIES = {
    "a": {"__name__": "up", "job": "node", "instance": "h1"},
    "b": {"__name__": "up", "job": "node", "instance": "h2", "zone": "eu"},
    "c": {"__name__": "up", "job": "db", "zone": "us"},
    "d": {"__name__": "load", "job": "node", "instance": "h1", "zone": "eu\nwest"},
    "e": {"__name__": "load"},
}


def names_of(index: SeriesIndex, series: dict[str, dict[str, str]], *matchers: Matcher) -> str:
    joined, lengths = index.labels_of(index.select(matchers))
    found, start = [], 0
    for length in lengths.tolist():
        labels = dict(parse_labels(joined[start : start + length]))
        found += [name for name, wanted in series.items() if wanted == labels]
        start += length
    return "".join(sorted(found))


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("up", "abc"),
        ("nothing", ""),
        ('up{job="node"}', "ab"),
        ('{job="node"}', "abd"),
        ('up{zone=""}', "a"),
        ('up{zone!=""}', "bc"),
        ('{zone!=""}', "bcd"),
        ('up{zone!="eu"}', "ac"),
        ('up{zone=~"eu|"}', "ab"),
        ('up{zone!~"eu|"}', "c"),
        ('{zone=~"eu"}', "b"),
        ('{zone=~"eu.*"}', "bd"),
        ('{zone=~"eu.west"}', "d"),
        ('{zone=~".+"}', "bcd"),
        ('up{zone=~".*"}', "abc"),
        ('up{zone!~".*"}', ""),
        ('up{zone!~".+"}', "a"),
        ('{zone!~"e.*",job!=""}', "ac"),
        ('{job=~"n.*",instance!="h1"}', "b"),
        ('{job=~"n.*",instance!~"h1|h2"}', ""),
        ('{job=~"node|db",zone=~"u."}', "c"),
        ('{job="node",job="db"}', ""),
        ('{job=~"node|db",job!="db"}', "abd"),
        ('{__name__=~"up|load",job=""}', "e"),
        ('{job!~"node"} ', None),
        ('{job!="node"}', None),
        ('{job=""}', None),
        ('{job=~".*"}', None),
        ('{job=~"node|"}', None),
        ('{job!~".+"}', None),
        ('{nothing!="x",other=~"x?"}', None),
        ('{nothing="x"}', ""),
        ('{nothing=~"x.*"}', ""),
        ('up{nothing!="x"}', "abc"),
    ],
)
def test_matchers_select_as_in_prometheus(selector: str, wanted: str | None) -> None:
    index = SeriesIndex()
    index.register(*announced(list(SERIES.values())))
    if wanted is None:
        with pytest.raises(InvalidRequest) as caught:
            index.select(matchers_of(selector))
        assert caught.value.reason == "selector_too_broad"
    else:
        assert names_of(index, SERIES, *matchers_of(selector)) == wanted


def test_no_matcher_at_all_is_too_broad() -> None:
    index = SeriesIndex()
    for _ in range(2):
        with pytest.raises(InvalidRequest) as caught:
            index.select(())
        assert caught.value.reason == "selector_too_broad"
        index.all_refs()


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_a_matcher_that_is_not_utf_8_is_refused(text: str) -> None:
    for matcher in (Matcher(MatchType.EQUAL, "job", text), Matcher(MatchType.EQUAL, text, "x")):
        with pytest.raises(InvalidRequest) as caught:
            SeriesIndex().select([matcher])
        assert caught.value.reason == "bad_matcher"


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ('{i=~"[0-9]+5"}', lambda i: i % 10 == 5 and i > 9),
        ('{i=~".+"}', lambda i: True),
        ('{i!=""}', lambda i: True),
        ('x{i!~"1.*"}', lambda i: not str(i).startswith("1")),
        ('x{i=~"(1.*)?"}', lambda i: str(i).startswith("1")),
        ('x{i=""}', lambda i: False),
        ('{i=~"[0-9]+",i!~"[0-4]+"}', lambda i: any(digit > "4" for digit in str(i))),
        ('{i=~".+",half="1"}', lambda i: i % 2 == 1),
        ('{i=~"1.*|2.*",half!="1"}', lambda i: str(i)[0] in "12" and i % 2 == 0),
    ],
)
def test_conditions_over_very_many_pairs_select_the_same(selector: str, wanted: object) -> None:
    assert callable(wanted)
    count = 5 * BITMAPS_MAX
    index = SeriesIndex()
    index.register(*announced([{"__name__": "x", "i": str(i), "half": str(i % 2)} for i in range(count)]))
    refs = index.select(matchers_of(selector))
    joined, lengths = index.labels_of(refs)
    assert len(lengths) == sum(bool(wanted(i)) for i in range(count))
    if len(lengths):
        first = dict(parse_labels(joined[: int(lengths[0])]))
        assert wanted(int(first["i"]))


def test_a_regular_expression_sees_values_that_came_after_it_was_first_used() -> None:
    index = SeriesIndex()
    selectors = [matchers_of(text) for text in ('{job=~"n[a-z]+"}', '{__name__="up",job!~"n[a-z]+"}', '{job!=""}')]
    for number, job in enumerate(["node", "db", "net", "n1", "nope"]):
        index.register(*announced([{"__name__": "up", "job": job}]))
        jobs = ["node", "db", "net", "n1", "nope"][: number + 1]
        matching = [job for job in jobs if job in ("node", "net", "nope")]
        assert [len(index.select(s)) for s in selectors] == [len(matching), len(jobs) - len(matching), len(jobs)]
