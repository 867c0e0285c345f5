"""The settings of a gateway reach its parts."""

from __future__ import annotations

from pathlib import Path

from ingest.grpc.service import ingest_service
from ingest.limits import Rate, SeriesLimits
from support.fakes.fake_log import FakeLog
from tsdb.config import GatewaySettings, load
from tsdb.log.kafka import config
from tsdb.model.clock import SystemClock
from tsdb.roles.gateway import make_gateway
from tsdb.roles.log import log_settings


def test_limits_of_sources_and_tokens_are_those_of_settings_and_file(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text("source_samples_per_s = 6\n")
    given = {
        "log": "kafka://127.0.0.1:1",
        "source_series_max": 1,
        "gateway_series_max": 2,
        "source_requests_per_s": 3,
        "source_samples_per_s": 4,
        "token_requests_per_s": 5,
        "token_samples_per_s": 0,
        "rate_burst_s": 7,
        "limits_file": str(file),
    }
    settings = load(GatewaySettings, given)
    gateway = make_gateway(settings, FakeLog(4, SystemClock()))
    limits = gateway.pipeline.limits_now
    assert limits.series() == SeriesLimits(1, 2)
    assert (limits.source_rates().default, limits.source_rates().burst_s) == (Rate(3, 6), 7)
    assert limits.token_rates().default == Rate(5, 0)
    service = ingest_service(gateway.pipeline, gateway.tokens)
    assert service.admit == gateway.tokens.admit, "the server asks before it reads a request"


def test_by_default_no_rate_is_limited() -> None:
    settings = load(GatewaySettings, {"log": "kafka://127.0.0.1:1"})
    gateway = make_gateway(settings, FakeLog(4, SystemClock()))
    assert not gateway.pipeline.limits_now.source_rates().limited
    assert not gateway.tokens.limited


def test_a_gateway_compresses_its_small_records_with_lz4() -> None:
    settings = log_settings(load(GatewaySettings, {"log": "kafka://127.0.0.1:1"}))
    assert config.producer("127.0.0.1:1", settings)["compression.type"] == "lz4"
