"""Canonical labels: the kernel accepts, orders, hashes and places label sets as the plain functions of the model do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.rows import make_rows
from ingest.series.canonical import LabelNormalizer, check_hash, hash_rows, source_hash
from ingest.series.label_kernels import VALID
from ingest.series.resolver import REASONS
from support.examples import examples
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, normalize_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule

LIMITS = LabelLimits(labels_max=5, name_bytes_max=12, value_bytes_max=14, total_bytes_max=70)
PARTITIONS = 18
RULES = (PlacementRule(), PlacementRule(("zone",)), PlacementRule(("job", "__name__", "zone")), PlacementRule(()))

NAMES = st.sampled_from(
    [
        b"__name__",
        b"__name__",
        b"__name__",
        b"job",
        b"instance",
        b"zone",
        b"a",
        b"ab",
        b"b",
        b"",
        b"__x",
        b"__aggr__",
        b"_",
        b"\xc3",
    ]
) | st.binary(max_size=14)
VALUES = st.sampled_from(
    [b"", b"x", b"x_total", b"_total", b"x_bucket_sum", b"up", b"h_created", b"\xc3\xa4", b"\xed\xa0\x80", b"y" * 15]
) | st.binary(max_size=14)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=7).map(
    lambda pairs: b"\xff".join(part for pair in pairs for part in pair)
)
GOOD = (
    st.dictionaries(
        st.sampled_from([b"job", b"instance", b"zone", b"a", b"b", "ä".encode()]),
        VALUES.filter(lambda value: len(value) < 15),
        max_size=4,
    )
    .flatmap(lambda labels: st.permutations([(b"__name__", b"x_sum"), *labels.items()]))
    .map(lambda pairs: b"\xff".join(part for pair in pairs for part in pair))
)


def check(raws: list[bytes], rule: PlacementRule, limits: LabelLimits) -> None:
    rows = make_rows(raws, None, np.zeros(len(raws), np.int64), np.zeros(len(raws)))
    which = np.arange(len(raws) - 1, -1, -1)
    got = LabelNormalizer(rule, PARTITIONS, limits).normalize(rows, which)
    for index, row in enumerate(which.tolist()):
        made = got.labels[got.label_starts[index] : got.label_starts[index + 1]].tobytes()
        if got.code[index] != VALID:
            with pytest.raises(InvalidRequest) as refused:
                normalize_labels(raws[row], limits)
            assert (REASONS[int(got.code[index])], b"") == (refused.value.reason, made)
            continue
        canonical = normalize_labels(raws[row], limits)
        assert (got.code[index], made) == (VALID, canonical)
        place = rule.place(canonical)
        assert got.series_id[index] == series_id(canonical)
        assert got.check[index] == check_hash(canonical)
        assert got.pack_id[index] == place.pack_id
        assert got.partition[index] == partition_of(place.placement, PARTITIONS)
        assert got.source[index] == source_hash(place.placement)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.one_of(PAIRS, GOOD, st.binary(max_size=80)), min_size=1, max_size=6), st.sampled_from(RULES))
@example([b"__name__\xffx\xffa\xff1\xffa\xff0"], RULES[0])
@example([b"__name__\xff_total", b"__name__\xffa_bucket\xffjob\xff"], RULES[0])
def test_any_label_sets_get_what_the_model_says(raws: list[bytes], rule: PlacementRule) -> None:
    check(raws, rule, LIMITS)


@pytest.mark.parametrize("value", [1, 40, 117, 118, 230, 500, 2048])
def test_label_sets_of_every_length_class_of_the_hash(value: int) -> None:
    check(
        [b"__name__\xffm\xffjob\xff" + b"v" * value, b"z\xff" + b"w" * value + b"\xff__name__\xffm"],
        RULES[0],
        LabelLimits(),
    )


def test_the_hashes_of_labels_in_order_are_those_of_the_series() -> None:
    raws = [b"__name__\xffm\xffn\xff%d" % number for number in range(50)]
    ids, checks = hash_rows(make_rows(raws, None, np.zeros(50, np.int64), np.zeros(50)))
    assert ids.tolist() == [series_id(raw) for raw in raws]
    assert checks.tolist() == [check_hash(raw) for raw in raws]
