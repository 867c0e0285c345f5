"""Labels: canonical form, ids, and the error of each bad label set."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.data.log_records import GOLDEN
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import (
    LabelLimits,
    canonical_labels,
    format_series,
    labels_json,
    metric_name,
    normalize_labels,
    parse_labels,
    series_id,
)

VECTORS = json.loads((GOLDEN / "v1/hash_vectors.json").read_text())["series"]
LIMITS = LabelLimits()
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
LABELS = st.dictionaries(TEXT.filter(lambda name: not name.startswith("__")), TEXT, max_size=6).map(
    lambda labels: {"__name__": "m", **labels}
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["series_id"])
def test_series_id_vectors_stand(vector: dict[str, str]) -> None:
    canonical = canonical_labels(vector["labels"])  # type: ignore[arg-type]  # JSON
    assert canonical == bytes.fromhex(vector["canonical"])
    assert series_id(canonical) == int(vector["series_id"], 16)


@given(LABELS, st.randoms(use_true_random=False))
def test_any_order_of_labels_is_one_series(labels: dict[str, str], random: Random) -> None:
    pairs = list(labels.items())
    random.shuffle(pairs)
    raw = b"\xff".join(part.encode() for pair in pairs for part in pair)
    assert normalize_labels(raw, LIMITS) == canonical_labels(labels) == canonical_labels(pairs)


@given(LABELS)
def test_labels_are_parsed_back_sorted_by_the_bytes_of_their_names(labels: dict[str, str]) -> None:
    parsed = parse_labels(canonical_labels(labels))
    assert dict(parsed) == labels
    assert [name for name, _ in parsed] == sorted(labels, key=str.encode)
    assert json.loads(labels_json(canonical_labels(labels))) == labels


def raw(*parts: str | bytes) -> bytes:
    return b"\xff".join(part if isinstance(part, bytes) else part.encode() for part in parts)


TIGHT = LabelLimits(labels_max=3, name_bytes_max=8, value_bytes_max=10, total_bytes_max=40)
REFUSED = [
    (b"", "labels_empty", "label set is empty"),
    (raw("__name__"), "labels_malformed", "a label name without a value"),
    (raw("__name__", "up", "job"), "labels_malformed", "a label name without a value"),
    (raw("job", "a"), "labels_malformed", "no __name__ label"),
    (raw("__name__", "up", "", "a"), "labels_malformed", "an empty label name"),
    (raw("__name__", ""), "labels_malformed", "__name__ is empty"),
    (raw("__name__", b"\xc3("), "labels_malformed", "label '__name__' is not valid UTF-8"),
    (raw("__name__", "up", b"\xed\xa0\x80", "a"), "labels_malformed", "is not valid UTF-8"),
    (raw("__name__", "up", "a", "1", "a", "2"), "labels_duplicate", "label 'a' twice"),
    (raw("a", "1", "__name__", "up", "a", "1"), "labels_duplicate", "label 'a' twice"),
    (raw("__name__", "up", "__aggr__", "1"), "labels_reserved", "label '__aggr__' is reserved for downsampled series"),
    (raw("__name__", "u", "__resolution__", "1"), "labels_too_long", "label name of 14 bytes"),
    (raw("__name__", "up", "a", "1", "b", "2", "c", "3"), "labels_too_many", "4 labels; limit is 3"),
    (raw("__name__", "up", "ninebytes", "1"), "labels_too_long", "label name of 9 bytes; limit is 8"),
    (raw("__name__", "eleven byte"), "labels_too_long", "value of '__name__' has 11 bytes; limit is 10"),
    (raw("__name__", "u" * 40), "labels_too_long", "49 bytes in all; limit is 40"),
]


@pytest.mark.parametrize(("labels", "reason", "message"), REFUSED)
def test_bad_labels_are_refused_by_name_and_limit(labels: bytes, reason: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normalize_labels(labels, TIGHT)
    assert refused.value.reason == reason
    assert message in refused.value.message


@pytest.mark.parametrize(
    "labels",
    [
        raw("__name__", "up", "a", "1", "b", "2"),  # the most labels
        raw("__name__", "ten bytes."),  # the longest name and value
        raw("__name__", "ten bytes.", "b", "ten bytes.", "cc", "1234"),  # the most bytes in all
    ],
)
def test_labels_at_their_limits_are_taken(labels: bytes) -> None:
    assert normalize_labels(labels, TIGHT) == labels


def test_a_refusal_names_the_series_and_cuts_it() -> None:
    with pytest.raises(InvalidRequest, match=r"series 'a\|x+\.\.\.'$") as refused:
        normalize_labels(raw("a", "x" * 5000, "a"), LIMITS)
    assert len(refused.value.message) < 400


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        canonical_labels({"__name__": "\ud800"})
    assert refused.value.reason == "labels_malformed"


def normalized(data: bytes) -> bytes | str:
    """Canonical labels, or the reason of the refusal."""
    try:
        return normalize_labels(data, TIGHT)
    except InvalidRequest as refused:
        return refused.reason


@given(st.binary(max_size=60) | st.lists(st.binary(max_size=9), max_size=8).map(lambda parts: raw("__name__", *parts)))
def test_any_bytes_are_normalized_or_refused(data: bytes) -> None:
    answer = normalized(data)
    if isinstance(answer, str):
        assert answer.startswith("labels_")
    else:
        assert canonical_labels(parse_labels(answer)) == normalized(answer) == answer


def test_no_labels_parse_to_nothing() -> None:
    assert parse_labels(b"") == ()
    assert metric_name(b"") == b""


def test_metric_name_is_found_wherever_it_sorts() -> None:
    assert metric_name(canonical_labels({"A": "__name__", "__name__": "up", "z": "1"})) == b"up"
    assert metric_name(canonical_labels({"A": "__name__", "z": "1"})) == b""


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"__name__": "up"}, "up"),
        ({"__name__": "up", "job": "a", "instance": "b:1"}, 'up{instance="b:1",job="a"}'),
        ({"__name__": "up", "path": 'C:\\"x"\n'}, 'up{path="C:\\\\\\"x\\"\\n"}'),
        ({"ort": "Zürich"}, '{ort="Zürich"}'),
    ],
)
def test_series_are_shown_as_prometheus_writes_them(labels: dict[str, str], text: str) -> None:
    assert format_series(canonical_labels(labels)) == text


def test_a_long_series_is_cut_where_it_is_shown() -> None:
    shown = format_series(canonical_labels({"__name__": "up", "v": "x" * 5000}))
    assert shown.endswith("...")
    assert len(shown) == 403


def test_labels_json_is_compact_and_sorted() -> None:
    canonical = canonical_labels({"b": "2", "__name__": "ü", "A": "1"})
    assert labels_json(canonical) == '{"A":"1","__name__":"ü","b":"2"}'
