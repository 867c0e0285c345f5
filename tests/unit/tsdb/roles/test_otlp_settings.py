"""The settings `otlp_*` of a gateway decide how its OTLP requests are mapped."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from support.data.otlp_requests import export_request, gauge, number_point, samples_of
from tsdb.config.gateway import GatewayFields
from tsdb.roles.gateway import otlp_decoder

REQUEST = export_request(
    gauge(number_point(a_b="x"), name="m.x", unit="s"), service__name="api", cloud__zone="z", os="linux"
)
REQUEST.resource_metrics[0].scope_metrics[0].scope.name = "lib"
INFO = "target_info{cloud_zone=z,job=api,os=linux}"
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["m_x_seconds{a_b=x,job=api}", INFO]),
    ({"otlp_translation_strategy": "UnderscoreEscapingWithoutSuffixes"}, ["m_x{a_b=x,job=api}", INFO]),
    (
        {"otlp_translation_strategy": "NoTranslation"},
        ["m.x{a_b=x,job=api}", "target_info{cloud.zone=z,job=api,os=linux}"],
    ),
    (
        {"otlp_promote_resource_attributes": "os, cloud.zone"},
        ["m_x_seconds{a_b=x,cloud_zone=z,job=api,os=linux}", INFO],
    ),
    (
        {"otlp_promote_all_resource_attributes": True, "otlp_ignore_resource_attributes": "os,service.name"},
        ["m_x_seconds{a_b=x,cloud_zone=z,job=api}", INFO],
    ),
    (
        {"otlp_keep_identifying_resource_attributes": True},
        ["m_x_seconds{a_b=x,job=api}", "target_info{cloud_zone=z,job=api,os=linux,service_name=api}"],
    ),
    ({"otlp_promote_scope_metadata": True}, ["m_x_seconds{a_b=x,job=api,otel_scope_name=lib}", INFO]),
]


@pytest.mark.parametrize(("settings", "expected"), CASES)
def test_a_setting_changes_the_series(settings: dict[str, Any], expected: list[str]) -> None:
    export = otlp_decoder(GatewayFields(**settings)).decode(REQUEST.SerializeToString())
    found = []
    for labels, _, _ in samples_of(export):
        name = labels.pop("__name__")
        found.append(f"{name}{{{','.join(f'{key}={labels[key]}' for key in sorted(labels))}}}")
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"otlp_translation_strategy": "underscores"}, "otlp_translation_strategy"),
        ({"otlp_ignore_resource_attributes": "a"}, "needs otlp_promote_all_resource_attributes"),
        (
            {"otlp_promote_all_resource_attributes": True, "otlp_promote_resource_attributes": "a"},
            "covers otlp_promote_resource_attributes",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        GatewayFields(**settings)
