"""The series index agrees with a list of label dicts, whatever is registered, forgotten, released and compacted."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.data.announcements import announced
from support.examples import examples
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels, parse_labels, series_id
from tsdb.model.selector import Matcher, MatchType

NAMES = ("__name__", "a", "b", "c")
VALUES = ("x", "xy", "y", "x\ny", "é", *(str(number) for number in range(90)))
PATTERNS = (
    "",
    "x",
    "x|y",
    "(x|é|7)",
    "x.*",
    "x.+",
    ".*",
    ".+",
    "[xy]+",
    "[0-9]+",
    "1.",
    "(?:1.)?",
    "x\\|",
    ".*y",
    "é|.{2}",
)

label_sets = st.fixed_dictionaries(
    {"__name__": st.sampled_from(("up", "load", "up_total"))},
    optional={name: st.sampled_from(VALUES) for name in NAMES[1:]},
)
matchers = st.lists(
    st.one_of(
        st.builds(
            Matcher,
            st.sampled_from((MatchType.EQUAL, MatchType.NOT_EQUAL)),
            st.sampled_from((*NAMES, "d")),
            st.sampled_from(("", "up", *VALUES)),
        ),
        st.builds(
            Matcher,
            st.sampled_from((MatchType.REGEX, MatchType.NOT_REGEX)),
            st.sampled_from((*NAMES, "d")),
            st.sampled_from(PATTERNS),
        ),
    ),
    min_size=1,
    max_size=3,
)


def satisfies(value: str, matcher: Matcher) -> bool:
    if matcher.type in (MatchType.EQUAL, MatchType.NOT_EQUAL):
        holds = value == matcher.value
    else:
        holds = re.fullmatch(matcher.value, value, re.DOTALL) is not None
    return holds != (matcher.type in (MatchType.NOT_EQUAL, MatchType.NOT_REGEX))


class IndexOracle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = SeriesIndex()
        self.known: dict[int, dict[str, str]] = {}
        self.now_ms = 0
        self.announced_ms: dict[int, int] = {}

    @rule(batch=st.lists(label_sets, max_size=40))
    def register(self, batch: list[dict[str, str]]) -> None:
        self.now_ms += 1
        done = self.index.register(*announced(batch, broker_ms=self.now_ms))
        ids = [series_id(canonical_labels(labels)) for labels in batch]
        fresh = set(ids) - set(self.known)
        self.known.update(zip(ids, batch, strict=True))
        self.announced_ms.update(dict.fromkeys(ids, self.now_ms))
        assert (done.new, done.repeated) == (len(fresh), len(batch) - len(fresh))

    @rule(value=st.sampled_from(NAMES[1:]))
    def register_each_value(self, value: str) -> None:
        self.register([{"__name__": "up", value: number} for number in VALUES])

    @precondition(lambda self: self.known)
    @rule(age=st.integers(0, 4), sampled=st.integers(0, 2**32))
    def forget_expired(self, age: int, sampled: int) -> None:
        has_samples = np.random.default_rng(sampled).random(self.index.refs_size) < 0.5
        refs = self.index.expired(self.now_ms - age, has_samples)
        gone = set(self.index.series_ids_of(refs).tolist())
        for number in self.known:
            ref = int(self.index.refs_of(np.array([number], np.uint64))[0])
            assert (number in gone) == (not has_samples[ref] and self.announced_ms[number] < self.now_ms - age)
        self.index.forget(refs)
        for number in gone:
            del self.known[number], self.announced_ms[number]

    @rule()
    def release(self) -> None:
        self.index.release_forgotten()

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule(wanted=matchers)
    def select(self, wanted: list[Matcher]) -> None:
        if all(satisfies("", matcher) for matcher in wanted):
            with pytest.raises(InvalidRequest) as caught:
                self.index.select(wanted)
            assert caught.value.reason == "selector_too_broad"
            return
        expected = {
            number: labels
            for number, labels in self.known.items()
            if all(satisfies(labels.get(matcher.name, ""), matcher) for matcher in wanted)
        }
        refs = self.index.select(wanted)
        assert self.index.series_ids_of(refs).tolist() == sorted(expected)
        self.check_details(refs, expected)
        assert self.index.label_names(wanted) == sorted({name for labels in expected.values() for name in labels})
        assert self.index.label_values("a", wanted) == sorted({v["a"] for v in expected.values() if "a" in v})

    def check_details(self, refs: np.ndarray, expected: dict[int, dict[str, str]]) -> None:
        joined, lengths = self.index.labels_of(refs)
        start = 0
        for number, length in zip(sorted(expected), lengths.tolist(), strict=True):
            assert dict(parse_labels(joined[start : start + length])) == expected[number]
            start += length
        groups = Counter((labels.get("b", ""), labels["__name__"]) for labels in expected.values())
        assert self.index.group_counts(["b", "__name__"], refs) == groups
        assert sorted(refs[self.index.layout_order(refs)].tolist()) == sorted(refs.tolist())

    @invariant()
    def knows_what_it_was_told(self) -> None:
        assert self.index.series == len(self.known)
        assert self.index.series_ids_of(self.index.all_refs()).tolist() == sorted(self.known)
        assert self.index.label_values("__name__") == sorted({v["__name__"] for v in self.known.values()})
        assert self.index.label_names() == sorted({name for labels in self.known.values() for name in labels})


IndexOracle.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=25)
TestIndexOracle = pytest.mark.slow(IndexOracle.TestCase)
