"""Refusals: bounded in number and bytes, and every reason that rows and requests meet has its counter."""

from __future__ import annotations

import pytest

from ingest.refusals import MESSAGE_BYTES_MAX, OFFENDERS_MAX, Refusals, count_refused_samples, cut
from support.counters import sample
from tsdb.model.errors import InvalidRequest
from tsdb.ops.grpc.errors import to_status
from tsdb.ops.metrics import registry


def test_an_error_fits_into_the_headers_that_clients_take() -> None:
    refusals = Refusals()
    for row in range(100):
        refusals.add(row, 3, "labels_too_long", "\N{GRINNING FACE}" * 500)
    error = refusals.error(1000)
    status = to_status(error)
    header_bytes = len(status.SerializeToString()) * 4 / 3 + 3 * len(status.message.encode())
    assert header_bytes < 8 * 1024
    listed = [key for key in error.metadata if key.startswith("offender_")]
    assert listed == [f"offender_{row}" for row in range(1, 10)]
    assert len(refusals.offenders) == OFFENDERS_MAX


def test_all_samples_of_a_refused_request_are_counted_by_reason() -> None:
    refusals = Refusals()
    refusals.add(4, 3, "too_old", "old")
    refusals.add(6, 2, "labels_malformed", "bad")
    assert refusals.error(20).samples == {"too_old": 3, "labels_malformed": 2, "in_refused_request": 15}


@pytest.mark.parametrize("message", ["", "short", "x" * MESSAGE_BYTES_MAX])
def test_a_short_message_stays(message: str) -> None:
    assert cut(message) == message


def test_a_long_message_is_cut_between_characters() -> None:
    got = cut("\N{EURO SIGN}" * 1000)
    assert len(got.encode()) <= MESSAGE_BYTES_MAX
    assert got.endswith("\N{EURO SIGN}...")


def test_text_that_is_no_utf8_still_makes_a_message() -> None:
    assert cut("\udcff" * 1000).encode()


def test_a_reason_outside_the_set_counts_as_other() -> None:
    before = sample("tsdb_ingest_refused_samples_total", reason="other")
    count_refused_samples({"made_up": 5})
    assert sample("tsdb_ingest_refused_samples_total", reason="other") == before + 5
    assert registry.get_sample_value("tsdb_ingest_refused_samples_total", {"reason": "made_up"}) is None


def test_reasons_show_zero_from_the_start() -> None:
    for reason in ("too_old", "too_far_ahead", "id_conflict", "clock", "inflight_bytes", "draining", "deadline"):
        assert registry.get_sample_value("tsdb_ingest_refused_samples_total", {"reason": reason}) is not None


def test_a_refusal_is_an_invalid_request() -> None:
    refusals = Refusals()
    refusals.add(0, 1, "too_old", "text")
    error = refusals.error(1)
    assert isinstance(error, InvalidRequest)
    assert str(error) == "series_index 0: text; nothing was written"
