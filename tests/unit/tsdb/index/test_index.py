from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from support.counters import sample
from support.data.announcements import Labels, announced, announced_raw
from tsdb.index.index import COMPACT_SERIES_MIN, SeriesIndex
from tsdb.index.label_index import BATCH_SERIES
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.errors import Overloaded
from tsdb.model.labels import canonical_labels, parse_labels, series_id
from tsdb.selector.selectors import parse_selector

UP = {"__name__": "up", "job": "node"}
LOAD = {"__name__": "load", "job": "node", "cpu": "0"}


def made_of(*labels: Labels, broker_ms: int = 0) -> SeriesIndex:
    index = SeriesIndex()
    index.register(*announced(labels, broker_ms=broker_ms))
    return index


def labels_of(index: SeriesIndex, refs: NDArray[np.uint32]) -> list[dict[str, str]]:
    joined, lengths = index.labels_of(refs)
    ends = np.cumsum(lengths, dtype=np.int64)
    assert len(joined) == (ends[-1] if len(ends) else 0)
    return [dict(parse_labels(joined[end - length : end])) for end, length in zip(ends, lengths, strict=True)]


def ref_of(index: SeriesIndex, labels: Labels) -> NDArray[np.uint32]:
    return index.refs_of(np.array([series_id(canonical_labels(labels))], np.uint64))


def hosts(count: int, metric: str = "up") -> list[Labels]:
    return [{"__name__": metric, "instance": f"host-{number}"} for number in range(count)]


# Registering.


def test_a_series_is_found_by_id_and_by_labels_as_soon_as_it_is_registered() -> None:
    index = made_of(UP)
    index.select(parse_selector("load"))
    assert index.register(*announced([UP, LOAD, LOAD])).new == 1
    refs = index.select(parse_selector("load"))
    assert refs.tolist() == ref_of(index, LOAD).tolist() == [1]
    assert labels_of(index, refs) == [LOAD]
    assert index.series_ids_of(refs).tolist() == [series_id(canonical_labels(LOAD))]
    assert (index.series, index.refs_size) == (2, 2)


def test_announcements_are_counted_as_new_repeated_conflicting_and_malformed() -> None:
    index = SeriesIndex()
    conflicts = sample("tsdb_index_label_conflicts_total")
    malformed = sample("tsdb_index_malformed_labels_total")
    a, b = canonical_labels(UP), canonical_labels(LOAD)
    done = index.register(*announced_raw([(1, a), (1, a), (1, b), (2, b), (2, a), (3, b"z\xff1\xffa\xff2")]))
    assert (done.new, done.repeated, done.conflicts, done.malformed) == (2, 1, 2, 1)
    assert labels_of(index, index.refs_of(np.array([1, 2, 3], np.uint64))) == [UP, LOAD]
    assert sample("tsdb_index_label_conflicts_total") == conflicts + 2
    assert sample("tsdb_index_malformed_labels_total") == malformed + 1


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"a\xff1",
        b"a\xff12\xffb\xff",
        b"a\xff1\xffb\xff23",
        b"a\xff1\xffb\xff3",
        b"a\xff1\xffc\xff2",
        b"a\xff1xb\xff2",
    ],
)
def test_labels_that_differ_anywhere_are_a_conflict_and_the_first_stay(other: bytes) -> None:
    index = SeriesIndex()
    first = b"a\xff1\xffb\xff2"
    index.register(*announced_raw([(9, first)], broker_ms=5))
    done = index.register(*announced_raw([(9, other)], broker_ms=50))
    # Labels without a value do not get past the codec.
    assert done.conflicts == (1 if other.count(b"\xff") % 2 else 0)
    refs = index.refs_of(np.array([9], np.uint64))
    assert index.labels_of(refs)[0] == first
    assert index.expired(6, np.zeros(0, np.bool_)).tolist() == refs.tolist(), "a refused announcement prolongs nothing"


@pytest.mark.parametrize(
    "labels",
    [b"b\xff1\xffa\xff2", b"a\xff1\xffa\xff2", b"\xff1", b"a\xff1\xff\xff2", b"ab\xff1\xffa\xff1", b"a\xff1\xffb"],
)
def test_labels_that_are_not_canonical_are_refused(labels: bytes) -> None:
    index = SeriesIndex()
    done = index.register(*announced_raw([(1, labels), (2, canonical_labels(UP))]))
    assert done.new == index.series == 1
    assert index.label_names() == ["__name__", "job"]


def test_records_of_a_bad_status_are_passed_over() -> None:
    records, values, broker_ms = announced([UP, LOAD])
    records.status[0] = 1
    index = SeriesIndex()
    assert index.register(records, values, broker_ms).new == 1
    assert labels_of(index, index.all_refs()) == [LOAD]


def test_series_id_0_and_labels_of_any_length_are_kept() -> None:
    long = "x" * 2000
    texts = [canonical_labels({"__name__": "é", **{f"l{i:02}": long for i in range(64)}}), b"a\xff", b"a\xffb"]
    index = SeriesIndex()
    index.register(*announced_raw(list(enumerate(texts))))
    refs = index.refs_of(np.arange(3, dtype=np.uint64))
    assert refs.tolist() == [0, 1, 2]
    joined, lengths = index.labels_of(refs)
    assert joined == b"".join(texts)
    assert lengths.tolist() == [len(text) for text in texts]


def test_many_batches_and_one_large_one_make_the_same_index() -> None:
    series = [{"__name__": f"m{i % 7}", "i": str(i)} for i in range(2 * BATCH_SERIES + 10)]
    one, many = made_of(*series), SeriesIndex()
    for start in range(0, len(series), 1000):
        many.register(*announced(series[start : start + 1000]))
    for selector in ("m3", '{i=~"1.*"}', '{i="77"}', '{__name__=~"m[12]",i!~".*5"}'):
        refs = many.select(parse_selector(selector))
        assert len(refs)
        assert refs.tolist() == one.select(parse_selector(selector)).tolist()


def test_a_column_that_a_reader_took_stays_true_while_the_index_grows() -> None:
    index = made_of(UP)
    table, ids = index.table.arrays, index.id_of_ref
    index.register(*announced(hosts(20_000)))
    assert ids[0] == index.id_of_ref[0] == series_id(canonical_labels(UP))
    assert table[0].size < index.table.arrays[0].size


# Reading.


def test_selected_refs_ascend_by_unsigned_series_id_and_cannot_be_written_to() -> None:
    index = made_of(*hosts(300))
    for refs in (index.all_refs(), index.select(parse_selector("up")), index.select(parse_selector("up"))):
        ids = index.series_ids_of(refs)
        assert len(ids) == 300
        assert (ids[1:] > ids[:-1]).all()
        assert ids[-1] > np.uint64(1 << 63)
        with pytest.raises(ValueError, match="read-only"):
            refs[0] = 0


def test_refs_of_leaves_out_unknown_ids_and_repetitions() -> None:
    index = made_of(UP)
    known = series_id(canonical_labels(UP))
    assert index.refs_of(np.array([3, known, known, 5], np.uint64)).tolist() == [0]
    assert index.table.find(np.array([3, known], np.uint64)).tolist() == [NO_REF, 0]


def test_the_same_selector_is_answered_from_memory_until_a_series_comes_or_goes() -> None:
    index = made_of(*hosts(3))
    up = parse_selector("up")
    assert index.select(up) is index.select(list(up))
    before = index.select(up)
    index.register(*announced(hosts(3)))
    assert index.select(up) is before
    index.register(*announced([{"__name__": "up"}]))
    assert len(index.select(up)) == 4
    index.forget(ref_of(index, {"__name__": "up"}))
    assert index.select(up).tolist() == before.tolist()


def test_names_and_values_are_those_of_the_series_selected() -> None:
    index = made_of(UP, LOAD, {"__name__": "up", "job": "db", "zone": "é"})
    assert index.label_names() == ["__name__", "cpu", "job", "zone"]
    assert index.label_names(parse_selector("up")) == ["__name__", "job", "zone"]
    assert index.label_names(parse_selector("none")) == []
    assert index.label_values("job") == ["db", "node"]
    assert index.label_values("job", ()) == ["db", "node"]
    assert index.label_values("job", parse_selector('{zone=~".+"}')) == ["db"]
    assert index.label_values("zone") == ["é"]
    assert index.label_values("nothing") == index.label_values("") == []


def test_more_values_than_the_limit_are_refused_not_cut() -> None:
    index = made_of(*hosts(10))
    assert len(index.label_values("instance", limit=10)) == 10
    with pytest.raises(Overloaded) as caught:
        index.label_values("instance", limit=9)
    assert caught.value.reason == "values_limit"
    assert caught.value.metadata == {"limit": "9", "asked": "10"}


def test_groups_count_each_combination_and_an_absent_label_is_empty() -> None:
    index = made_of(UP, LOAD, {"__name__": "up", "job": "db"}, {"__name__": "x"})
    refs = index.all_refs()
    assert index.group_counts(["job", "cpu"], refs) == Counter(
        {("node", ""): 1, ("node", "0"): 1, ("db", ""): 1, ("", ""): 1}
    )
    assert index.group_counts(["job"], refs) == Counter({("node",): 2, ("db",): 1, ("",): 1})
    assert index.group_counts(["nothing"], refs) == Counter({("",): 4})
    assert index.group_counts([], refs) == Counter({(): 4})
    assert index.group_counts(["job"], refs[:0]) == Counter()


def test_labels_of_come_in_the_order_of_the_refs_with_repeats() -> None:
    index = made_of(UP, LOAD)
    assert labels_of(index, np.array([1, 0, 1], np.uint32)) == [LOAD, UP, LOAD]
    assert index.labels_of(np.empty(0, np.uint32))[0] == b""


def test_layout_puts_a_family_together_then_a_source_then_each_metric_of_the_family() -> None:
    metrics = ("rq_bucket", "rq_sum", "rq_count", "up", "load_total")
    series = [
        {"__name__": metric, "job": "a", "instance": f"h{host}", "le": str(le)}
        for le in range(3) for host in range(5) for metric in metrics
    ]  # fmt: skip
    index = made_of(*series)
    refs = np.random.default_rng(3).permutation(len(series)).astype(np.uint32)
    order = refs[index.layout_order(refs)]
    found = labels_of(index, order)
    family = ["rq" if labels["__name__"].startswith("rq") else labels["__name__"] for labels in found]
    assert _runs(family) == 3
    assert _runs((f, labels["instance"]) for f, labels in zip(family, found, strict=True)) == 3 * 5
    assert _runs((labels["__name__"], labels["instance"]) for labels in found) == 5 * 5
    assert index.layout_order(order).tolist() == list(range(len(series)))
    ascending = np.sort(refs)
    assert ascending[index.layout_order(ascending)].tolist() == order.tolist()


def _runs(keys: Iterable[object]) -> int:
    """Stretches of equal keys."""
    return sum(1 for _ in itertools.groupby(keys))


# Forgetting.


def test_a_series_without_samples_expires_when_its_last_announcement_is_old() -> None:
    index = made_of(UP, LOAD, {"__name__": "x"}, broker_ms=100)
    index.register(*announced([LOAD], broker_ms=200))
    index.register(*announced([LOAD], broker_ms=150))
    has_samples = np.array([True])
    assert index.expired(100, has_samples).tolist() == []
    assert index.expired(101, has_samples).tolist() == [2]
    assert index.expired(200, has_samples).tolist() == [2]
    assert index.expired(201, has_samples).tolist() == [1, 2]
    index.forget(np.array([2], np.uint32))
    assert index.expired(201, np.zeros(10, np.bool_)).tolist() == [0, 1]


def test_a_forgotten_series_is_found_no_more_but_readers_that_hold_its_ref_go_on() -> None:
    index = made_of(UP, LOAD)
    up = ref_of(index, UP)
    forgotten = sample("tsdb_index_forgotten_series_total")
    index.forget(up)
    assert index.series == 1
    assert len(ref_of(index, UP)) == len(index.select(parse_selector("up"))) == 0
    assert labels_of(index, index.all_refs()) == [LOAD]
    assert index.label_values("__name__") == ["load"]
    index.register(*announced(hosts(50)))
    assert labels_of(index, up) == [UP]
    assert index.series_ids_of(up).tolist() == [series_id(canonical_labels(UP))]
    assert sample("tsdb_index_forgotten_series_total") == forgotten + 1


def test_released_refs_are_used_again_and_none_before() -> None:
    index = made_of(*hosts(10))
    index.forget(index.all_refs())
    index.register(*announced(hosts(3, "other")))
    assert index.refs_size == 13
    assert index.release_forgotten() == 10
    assert index.release_forgotten() == 0
    index.register(*announced(hosts(12)))
    assert index.refs_size == 15
    assert index.series == 15
    assert len({str(labels) for labels in labels_of(index, index.all_refs())}) == 15
    assert sorted(labels_of(index, index.select(parse_selector("up"))), key=str) == sorted(hosts(12), key=str)


def test_a_series_that_comes_back_is_a_new_one() -> None:
    index = made_of(UP)
    index.forget(np.array([0], np.uint32))
    assert index.register(*announced([UP])).new == 1
    assert ref_of(index, UP).tolist() == index.select(parse_selector("up")).tolist() == [1]


@pytest.mark.parametrize("kept", [[], [UP]], ids=["none", "one"])
def test_an_index_restored_after_its_series_are_forgotten_finds_the_rest(kept: list[Labels]) -> None:
    index = made_of(UP, LOAD)
    for labels in (UP, LOAD):
        if labels not in kept:
            index.forget(ref_of(index, labels))
    restored = SeriesIndex()
    restored.restore(index.image())
    assert labels_of(restored, restored.select(parse_selector('{job="node"}'))) == kept
    assert labels_of(restored, restored.select(parse_selector('{job=~"n.*", cpu!="0"}'))) == kept
    restored.register(*announced([LOAD]))
    assert labels_of(restored, restored.select(parse_selector("load"))) == [LOAD]


def test_only_live_series_are_forgotten() -> None:
    index = made_of(UP)
    index.forget(np.array([0], np.uint32))
    with pytest.raises(AssertionError):
        index.forget(np.array([0], np.uint32))


def test_series_that_come_and_go_leave_no_memory_behind() -> None:
    index = made_of(*hosts(100, "stays"))
    sizes, churn = [], COMPACT_SERIES_MIN // 3
    for generation in range(16):
        index.register(*announced(hosts(churn, f"generation_{generation}")))
        index.forget(index.select(parse_selector(f"generation_{generation}")))
        index.release_forgotten()
        sizes.append(index.bytes())
    assert max(sizes[8:]) <= 1.05 * max(sizes[:8])
    assert index.refs_size == 100 + churn
    assert sorted(labels_of(index, index.all_refs()), key=str) == sorted(hosts(100, "stays"), key=str)
    assert len(index.label_values("instance", parse_selector('{instance=~"host-1.*"}'))) == 11


def test_compaction_keeps_refs_selections_and_labels_that_readers_hold() -> None:
    index = made_of(UP, LOAD, *hosts(50))
    up, jobs, one = ref_of(index, UP), parse_selector('{job=~"n.*"}'), parse_selector('{instance=~"host-.?"}')
    index.forget(up)
    before = [index.select(jobs).tolist(), index.select(one).tolist(), index.all_refs().tolist()]
    index.compact()
    index.register(*announced([{"__name__": "new", "job": "none"}]))
    assert labels_of(index, up) == [UP]
    assert index.select(jobs).tolist()[:1] == before[0]
    assert index.select(one).tolist() == before[1]
    assert set(index.all_refs().tolist()) == {*before[2], index.refs_size - 1}


# Bounds.


def test_a_series_costs_at_most_150_bytes_with_its_labels() -> None:
    index = SeriesIndex()
    series = [
        {"__name__": f"m_{i % 100}", "job": "b", "instance": f"host-{i // 100}", "m": f"{i % 16}", "x": "1", "y": "2"}
        for i in range(60_000)
    ]  # fmt: skip
    index.register(*announced(series))
    assert index.bytes() / len(series) <= 150


def test_reads_from_other_threads_see_whole_series_while_one_writes() -> None:
    index = made_of(*hosts(100, "stays"))
    stop, troubles = threading.Event(), []
    stays, any_host = parse_selector("stays"), parse_selector('{instance=~"host-.*[13579]",__name__!="stays"}')

    def read() -> None:
        try:
            while not stop.is_set():
                assert len(index.select(stays)) == 100
                found = labels_of(index, index.select(any_host))
                assert all(set(labels) == {"__name__", "instance"} for labels in found)
                assert all(int(labels["instance"][5:]) % 2 for labels in found)
                assert not any(labels["__name__"] == "stays" for labels in found)
                assert "stays" in index.label_values("__name__")
        except BaseException as error:
            troubles.append(error)

    readers = [threading.Thread(target=read, name=f"reader-{number}") for number in range(3)]
    for reader in readers:
        reader.start()
    for generation in range(60):
        name = f"generation_{generation}"
        index.register(*announced(hosts(100, name)))
        assert len(index.select(parse_selector(name))) == 100
        if generation % 3 == 0:
            index.forget(index.select(parse_selector(name)))
        if generation % 20 == 0:
            index.compact()
    stop.set()
    for reader in readers:
        reader.join(60.0)
    assert not troubles
