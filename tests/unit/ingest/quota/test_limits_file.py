from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ingest.limits import IngestLimits, Rate, RateLimits, SeriesLimits
from ingest.quota.limits_file import BURST_S_MAX, FILE_BYTES_MAX, FILE_ENTRIES_MAX, CurrentLimits, read_limits
from ingest.quota.token_quota import holder_of
from ingest.series.canonical import source_hash
from tsdb.model.errors import ConfigMismatch
from tsdb.model.placement import PlacementRule

RULE = PlacementRule()
HEX = hashlib.sha256(b"token").hexdigest()
SETTINGS = CurrentLimits(SeriesLimits(10, 20), RateLimits(Rate(1, 2)), RateLimits(Rate(3, 4)))


def read(tmp_path: Path, text: str, settings: CurrentLimits = SETTINGS) -> CurrentLimits:
    file = tmp_path / "limits.toml"
    file.write_text(text)
    return read_limits(file, settings, RULE)


def test_what_the_file_leaves_out_is_as_in_the_settings(tmp_path: Path) -> None:
    assert read(tmp_path, "") == SETTINGS
    found = read(tmp_path, "gateway_series_max = 5\nsource_samples_per_s = 0.5\ntoken_requests_per_s = 0\n")
    assert found.series == SeriesLimits(10, 5)
    assert (found.source_rates.default, found.token_rates.default) == (Rate(1, 0.5), Rate(0, 4))


def test_single_sources_and_tokens_have_limits(tmp_path: Path) -> None:
    text = f"""
        rate_burst_s = 2.5
        [[source]]
        labels = {{ job = "a", instance = "b" }}
        series_max = 7
        samples_per_s = 8
        [[source]]
        labels = {{ __name__ = "up_total" }}
        series_max = 9
        [[token]]
        name = "team"
        sha256 = "{HEX.upper()}"
        requests_per_s = 6
    """
    found = read(tmp_path, text)
    placed, family = source_hash(b"a\xffb"), source_hash(b"up")
    assert found.series.of_source == {placed: 7, family: 9}
    assert found.source_rates == RateLimits(Rate(1, 2), {placed: Rate(None, 8)}, 2.5)
    assert found.token_rates == RateLimits(Rate(3, 4), {holder_of(bytes.fromhex(HEX)): Rate(6, None, "team")}, 2.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("source_samples_per_s = -1", "source_samples_per_s is -1; it must be a number from 0 to"),
        ("token_requests_per_s = true", "token_requests_per_s is True"),
        ("source_requests_per_s = nan", "source_requests_per_s is nan"),
        ('source_requests_per_s = "9"', "source_requests_per_s is '9'"),
        (f"rate_burst_s = {BURST_S_MAX + 1}", "rate_burst_s is 3601.0"),
        ("rate_burst_s = 0", "rate_burst_s is 0"),
        ("requests_per_s = 1", "unknown key 'requests_per_s'; known are source_series_max"),
        ("source = 1", r"source must be tables \[\[source\]\]"),
        ("token = [1]", r"token must be tables \[\[token\]\]"),
        ('[[source]]\nlabels = {job = "j"}', r"\[\[source\]\] 1 must be labels"),
        ('[[source]]\nlabels = {job = "j"}\nseries_max = 1\nrate = 2', r"\[\[source\]\] 1 must be labels"),
        ('[[source]]\nlabels = {job = "j"}\nsamples_per_s = "x"', r"\[\[source\]\] 1: samples_per_s is 'x'"),
        ("[[token]]\nrequests_per_s = 1", r"\[\[token\]\] 1 must be sha256"),
        ('[[token]]\nsha256 = "abc"\nrequests_per_s = 1', r"\[\[token\]\] 1: sha256 must be 64 hexadecimal digits"),
        ("[[token]]\nsha256 = 7\nrequests_per_s = 1", "sha256 must be 64 hexadecimal digits"),
        (f'[[token]]\nsha256 = "{HEX}"', r"\[\[token\]\] 1 must be sha256"),
        (f'[[token]]\nsha256 = "{HEX}"\nname = 7\nrequests_per_s = 1', "name must be a text"),
        ("\n".join(["[[source]]"] * (FILE_ENTRIES_MAX + 1)), f"at most {FILE_ENTRIES_MAX}"),
        ("#" * (FILE_BYTES_MAX + 1), f"it has {FILE_BYTES_MAX + 1} bytes; limit is {FILE_BYTES_MAX}"),
        ("a = ", r"limits\.toml: "),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigMismatch, match=says) as caught:
        read(tmp_path, text)
    assert caught.value.reason == "limits_file"
    assert "limits_file " in caught.value.message


def test_without_rates_nothing_is_limited() -> None:
    limits = IngestLimits()
    assert not limits.source_rates.limited
    assert not limits.token_rates.limited
