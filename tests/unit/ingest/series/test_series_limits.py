from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest.limits import IngestLimits, SeriesLimits
from ingest.refusals import MESSAGE_BYTES_MAX
from support.counters import sample
from support.servers.gateways import Bench, label_set
from tsdb.log.interface import SERIES
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.time_set import PRODUCTION

WINDOW_MS = PRODUCTION.window_ms


def bench(source: int = 10, gateway: int = 1000, file: Path | None = None) -> Bench:
    return Bench(limits=IngestLimits(series=SeriesLimits(source, gateway), limits_file=file))


def series(numbers: Sequence[int] | range, instance: int = 0) -> list[bytes]:
    return [label_set(number, instance=instance) for number in numbers]


def announced(at: Bench) -> int:
    return sum(at.log.watermarks(SERIES, range(at.partitions))[p].high for p in range(at.partitions))


def test_new_series_over_the_limit_of_their_source_never_reach_the_log() -> None:
    at = bench(source=10)
    at.write(series(range(10)))
    with pytest.raises(InvalidRequest) as caught:
        at.write(series(range(5, 15)))
    assert caught.value.reason == "source_series_limit"
    assert announced(at) == 10
    for part in (
        'instance="i0"',
        "5 new series beside 10 active ones",
        "limit is 10",
        "source_series_max",
        "limits_file",
    ):
        assert part in caught.value.message
    assert caught.value.metadata["refused_series"] == "5"


def test_known_series_of_a_source_at_its_limit_go_on() -> None:
    at = bench(source=10)
    at.write(series(range(10)))
    with pytest.raises(InvalidRequest):
        at.write(series(range(10, 20)))
    assert at.write(series(range(10))).samples == 10


def test_partial_writes_known_series_and_lists_those_over_the_limit() -> None:
    at = bench(source=10)
    at.write(series(range(8)))
    result = at.write(series(range(20)), partial=True)
    assert (result.samples, result.refused_series, result.refused_samples) == (10, 10, 10)
    assert {offender.reason for offender in result.offenders} == {"source_series_limit"}
    assert max(len(offender.message.encode()) for offender in result.offenders) < MESSAGE_BYTES_MAX
    assert announced(at) == 10


def test_a_request_refused_whole_takes_no_room() -> None:
    at = bench(source=10)
    for first in (0, 100, 200):
        with pytest.raises(InvalidRequest):
            at.write(series(range(first, first + 11)))
    assert at.write(series(range(10))).samples == 10


def test_one_source_at_its_limit_leaves_the_others_theirs() -> None:
    at = bench(source=10)
    at.write(series(range(10)))
    with pytest.raises(InvalidRequest):
        at.write(series(range(10, 11)))
    assert at.write(series(range(10), instance=1)).samples == 10


def test_of_one_request_each_source_gets_its_own_limit() -> None:
    at = bench(source=10)
    result = at.write(series(range(15)) + series(range(4), instance=1) + series(range(12), instance=2), partial=True)
    assert (result.samples, result.refused_series) == (10 + 4 + 10, 5 + 2)


def test_all_sources_together_have_a_limit() -> None:
    at = bench(source=10, gateway=25)
    at.write(series(range(10)))
    at.write(series(range(10), instance=1))
    result = at.write(series(range(10), instance=2), partial=True)
    assert result.samples == 5
    assert {offender.reason for offender in result.offenders} == {"gateway_series_limit"}
    text = result.offenders[0].message
    assert text.startswith("10 new series of the request beside 20 active ones of the gateway; limit is 25 (gateway_")


def test_a_request_with_bad_labels_too_names_them_first() -> None:
    at = bench(source=1)
    with pytest.raises(InvalidRequest) as caught:
        at.write([*series(range(3)), b"bad"])
    assert caught.value.reason == "labels_malformed"


def test_series_that_are_not_written_any_more_make_room_after_two_windows() -> None:
    at = bench(source=10)
    at.write(series(range(10)))
    at.clock.advance(WINDOW_MS - 1)
    with pytest.raises(InvalidRequest):
        at.write(series(range(10, 20)))
    at.clock.advance(WINDOW_MS + 1)
    assert at.write(series(range(10, 20))).samples == 10


def test_series_that_are_written_stay_active() -> None:
    at = bench(source=10)
    for _ in range(12):
        at.write(series(range(10)))
        at.clock.advance(WINDOW_MS // 4)
    with pytest.raises(InvalidRequest):
        at.write(series(range(10, 11)))
    assert at.write(series(range(10))).samples == 10


def test_a_renewed_series_counts_once() -> None:
    at = bench(source=11)
    at.write(series(range(10)))
    for _ in range(3):
        at.clock.advance(WINDOW_MS * 9 // 10)
        at.write(series(range(10)))
    assert at.write(series([10])).samples == 1
    with pytest.raises(InvalidRequest):
        at.write(series([11]))


def test_refused_samples_and_requests_are_counted() -> None:
    at = bench(source=2)
    samples = sample("tsdb_ingest_refused_samples_total", reason="source_series_limit")
    requests = sample("tsdb_ingest_refused_requests_total", reason="source_series_limit")
    with pytest.raises(InvalidRequest):
        at.write(series(range(5)))
    assert sample("tsdb_ingest_refused_samples_total", reason="source_series_limit") == samples + 3
    assert sample("tsdb_ingest_refused_requests_total", reason="source_series_limit") == requests + 1


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def changed(at: Bench, file: Path, text: str) -> None:
    """Change the file, and let the gateway read it again."""
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    at.clock.advance(1000)


def test_limits_move_without_a_restart(tmp_path: Path) -> None:
    file = written(tmp_path / "limits.toml", "source_series_max = 5\n")
    at = bench(source=10, file=file)
    with pytest.raises(InvalidRequest, match="limit is 5"):
        at.write(series(range(6)))
    changed(at, file, "source_series_max = 6\n")
    assert at.write(series(range(6))).samples == 6
    changed(at, file, 'source_series_max = 6\n[[source]]\nlabels = {job = "j", instance = "i0"}\nseries_max = 20\n')
    assert at.write(series(range(20))).samples == 20
    with pytest.raises(InvalidRequest, match="limit is 6"):
        at.write(series(range(7), instance=1))


def test_a_source_can_be_stopped_from_bringing_new_series(tmp_path: Path) -> None:
    file = written(tmp_path / "limits.toml", "")
    at = bench(source=10, file=file)
    at.write(series(range(3)))
    changed(at, file, '[[source]]\nlabels = {job = "j", instance = "i0"}\nseries_max = 0\n')
    with pytest.raises(InvalidRequest, match="limit is 0"):
        at.write(series([3]))
    assert at.write(series(range(3))).samples == 3


def test_a_source_without_placement_labels_is_named_by_its_metric(tmp_path: Path) -> None:
    file = written(tmp_path / "l.toml", '[[source]]\nlabels = {__name__ = "up_total"}\nseries_max = 1\n')
    at = bench(file=file)
    with pytest.raises(
        InvalidRequest, match=r"source up: 2 new series beside 0 active ones; limit is 1 \(series_max of its"
    ):
        at.write([b"__name__\xffup_total\xffn\xff1", b"__name__\xffup_total\xffn\xff2"])


@pytest.mark.parametrize("text", ["source_series_max = -1", "what = 1", "not toml", None])
def test_a_file_that_goes_wrong_leaves_the_limits_as_they_are(tmp_path: Path, text: str | None) -> None:
    file = written(tmp_path / "limits.toml", "source_series_max = 5\n")
    at = bench(file=file)
    failures = sample("tsdb_ingest_limits_reload_failures_total")
    if text is None:
        file.unlink()
        at.clock.advance(1000)
    else:
        changed(at, file, text)
    for _ in range(3):
        with pytest.raises(InvalidRequest, match="limit is 5"):
            at.write(series(range(6)))
        at.clock.advance(1000)
    assert sample("tsdb_ingest_limits_reload_failures_total") == failures + 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("source_series_max = true", "source_series_max is True; it must be a whole number from 0 to 100000000"),
        ("gateway_series_max = 1e3", "gateway_series_max is 1000.0"),
        ("sources = 1", "unknown key 'sources'"),
        ("source = 1", r"must be tables \[\[source\]\]"),
        ("[[source]]\nseries_max = 1", r"\[\[source\]\] 1 must be labels"),
        ('[[source]]\nlabels = {job = "j"}\nseries_max = "1"', "series_max is '1'"),
        ('[[source]]\nlabels = {jobs = "j"}\nseries_max = 1', "label 'jobs' is no placement label"),
        ("[[source]]\nlabels = {job = 1}\nseries_max = 1", "must be a table of texts"),
        ("[[source]]\nlabels = {}\nseries_max = 1", "must be a table of texts"),
        ("a = ", "limits.toml: "),
    ],
)
def test_a_wrong_file_refuses_the_start_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigMismatch, match=says):
        bench(file=written(tmp_path / "limits.toml", text))


def test_a_missing_file_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match=r"none\.toml"):
        bench(file=tmp_path / "none.toml")


def test_the_example_of_the_runbook_is_a_file_that_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[4] / "docs/runbooks/README.md").read_text()
    example = textwrap.dedent(text.split("```toml\n")[1].split("```")[0])
    at = bench(file=written(tmp_path / "limits.toml", example))
    assert at.write(series(range(20))).samples == 20


def test_refused_series_do_not_push_known_ones_out_of_the_cache() -> None:
    limits = IngestLimits(series=SeriesLimits(60, 1000), series_table_bytes=1)
    at = Bench(limits=limits)
    at.write(series(range(50)))
    at.write(series(range(60), instance=1))
    before = sample("tsdb_ingest_series_cache_evictions_total")
    for first in range(100, 2_100, 50):
        with pytest.raises(InvalidRequest):
            at.write(series(range(first, first + 50), instance=1))
        at.write(series(range(first, first + 50), instance=1), partial=True)
    assert sample("tsdb_ingest_series_cache_evictions_total") == before
    misses = sample("tsdb_ingest_series_cache_misses_total")
    at.write(series(range(50)))
    at.write(series(range(60), instance=1))
    assert sample("tsdb_ingest_series_cache_misses_total") == misses
    assert announced(at) == 110


@pytest.mark.parametrize("partial", [True, False])
def test_series_refused_for_their_samples_do_not_push_known_ones_out_of_the_cache(partial: bool) -> None:
    at = Bench(limits=IngestLimits(series_table_bytes=1))
    at.write(series(range(50)))
    before = sample("tsdb_ingest_series_cache_evictions_total")
    for first in range(100, 2_100, 100):
        labels = series(range(first, first + 100), instance=1)
        with contextlib.nullcontext() if partial else pytest.raises(InvalidRequest):
            at.write(labels, ts_ms=[0] * 100, partial=partial)
    assert sample("tsdb_ingest_series_cache_evictions_total") == before
    at.write(series(range(50)), ts_ms=[at.clock.now_ms()] * 49 + [0], partial=True)
    at.write(series(range(50)))
    assert announced(at) == 50, "a known series with a refused sample stays known"
