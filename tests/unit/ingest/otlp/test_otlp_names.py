"""Names of metrics, labels and units follow the tables of Prometheus's translator."""

from __future__ import annotations

import pytest

from ingest.otlp.mapping.names import (
    PER_UNITS,
    UNITS,
    OtlpRules,
    TranslationStrategy,
    label_name,
    metric_name,
    unit_name,
)
from ingest.otlp.wire.field_kernels import GAUGE, HISTOGRAM, SUM
from tsdb.model.errors import ConfigMismatch, InvalidRequest

CLASSIC = TranslationStrategy.UNDERSCORES_WITH_SUFFIXES
BARE = TranslationStrategy.UNDERSCORES_WITHOUT_SUFFIXES
UTF8 = TranslationStrategy.UTF8_WITH_SUFFIXES
KEPT = TranslationStrategy.NO_TRANSLATION

METRICS = [
    # name, unit, kind, monotonic, with suffixes, without, UTF-8 with suffixes
    ("http.server.duration", "s", HISTOGRAM, False, "http_server_duration_seconds", "http_server_duration",
     "http.server.duration_seconds"),
    ("requests", "1", SUM, True, "requests_total", "requests", "requests_total"),
    ("requests", "{request}", SUM, True, "requests_total", "requests", "requests_total"),
    ("requests.total", "", SUM, True, "requests_total", "requests_total", "requests_total"),
    ("total.requests", "", SUM, True, "requests_total", "total_requests", "total.requests_total"),
    ("connections", "1", SUM, False, "connections", "connections", "connections"),
    ("cpu.utilization", "1", GAUGE, False, "cpu_utilization_ratio", "cpu_utilization", "cpu.utilization_ratio"),
    ("hit.ratio", "1", GAUGE, False, "hit_ratio", "hit_ratio", "hit_ratio"),
    ("memory", "By", GAUGE, False, "memory_bytes", "memory", "memory_bytes"),
    ("memory.bytes", "By", GAUGE, False, "memory_bytes", "memory_bytes", "memory.bytes"),
    ("bytes.sent", "By", SUM, True, "bytes_sent_total", "bytes_sent", "bytes.sent_bytes_total"),
    ("disk.io", "By/s", GAUGE, False, "disk_io_bytes_per_second", "disk_io", "disk.io_bytes_per_second"),
    ("disk.io_per_second", "By/s", GAUGE, False, "disk_io_per_second_bytes_per_second", "disk_io_per_second",
     "disk.io_bytes_per_second"),
    ("speed", "km/h", GAUGE, False, "speed_km_per_hour", "speed", "speed_km_per_hour"),
    ("speed", "{packets}/s", GAUGE, False, "speed_per_second", "speed", "speed_per_second"),
    ("load", "%", GAUGE, False, "load_percent", "load", "load_percent"),
    ("2xx.responses", "", SUM, True, "_2xx_responses_total", "_2xx_responses", "2xx.responses_total"),
    ("a..b--c", "", GAUGE, False, "a_b_c", "a_b_c", "a..b--c"),
    ("a__b", "", GAUGE, False, "a_b", "a__b", "a__b"),
    ("ns:rule", "", GAUGE, False, "ns:rule", "ns:rule", "ns:rule"),
    ("größe", "m", GAUGE, False, "gr_e_meters", "gr_e", "größe_meters"),
    ("x", "weird unit!", GAUGE, False, "x_weird_unit_", "x", "x_weird unit!"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "unit", "kind", "monotonic", "classic", "bare", "utf8"), METRICS)
def test_a_metric_has_the_name_of_its_strategy(
    name: str, unit: str, kind: int, monotonic: bool, classic: str, bare: str, utf8: str
) -> None:
    built = [metric_name(name, unit, kind, monotonic, strategy) for strategy in (CLASSIC, BARE, UTF8, KEPT)]
    assert built == [classic, bare, utf8, name]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("per", ["", *PER_UNITS])
def test_every_unit_is_written_out(unit: str, per: str) -> None:
    words = [UNITS[unit], f"per_{PER_UNITS[per]}" if per else ""]
    name = unit_name(f"{unit}/{per}" if per else unit)
    assert name == "_".join(filter(None, words))


@pytest.mark.parametrize("name", ["", "..", "é", "___."])
def test_a_metric_name_without_a_letter_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no letter") as caught:
        metric_name(name, "", GAUGE, False, CLASSIC)
    assert caught.value.reason == "labels_malformed"


LABELS = [
    ("http.method", "http_method"), ("a-b c", "a_b_c"), ("9x", "key_9x"), ("_private", "key_private"),
    ("__meta__", "__meta__"), (".hidden", "key_hidden"), ("_", "key_"), (".", "key_"), ("__", "__"), ("é", "key_"),
    ("éa", "key_a"), ("..a", "__a"), ("a..b", "a__b"), ("A1", "A1"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "name"), LABELS)
def test_a_label_has_the_name_of_its_strategy(key: str, name: str) -> None:
    assert label_name(key, CLASSIC) == name
    assert label_name(key, KEPT) == key


@pytest.mark.parametrize("key", ["", "..", "éé", "..._"])
def test_a_label_name_without_a_letter_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="no letter"):
        label_name(key, CLASSIC)


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigMismatch, match="exclude each other"):
        OtlpRules(promote_all_resource_attributes=True, promote_resource_attributes=frozenset({"a"}))
    with pytest.raises(ConfigMismatch, match="needs promote_all"):
        OtlpRules(ignore_resource_attributes=frozenset({"a"}))
