"""Settings of confluent-kafka's clients, made of ours. Secrets pass through and are never logged."""

from __future__ import annotations

from typing import Any

from tsdb.log.kafka import library_log
from tsdb.log.settings import KafkaSecurity, LogSettings

MESSAGE_BYTES_MAX = 2 * 1024 * 1024  # A log record is at most 1 MiB; compressed noise and framing are a little more.
FETCH_BYTES_MIN = 256 * 1024
METADATA_REFRESH_MS = 3_000
LINGER_BYTES = 1 << 20  # A fetch that brings as much waits no longer.
FETCH_WAIT_MS = 100  # An idle fetch's length; a new assignment on the same broker waits for it.
# A partition whose topic is gone or has a new id is asked again after this long: what `TopicGuard` counts on.
FETCH_ERROR_BACKOFF_MS = 500

# With all brokers away the library would forget those it knows and start again from the bootstrap servers, without a
# pause: 190 threads started a second and a sixth of a core in a store. They are all asked anyway, names resolved again.
# Not for admin clients: without it they spin while they wait for a controller (2.16).
_KEEP_BROKERS = {"metadata.recovery.strategy": "none"}

Config = dict[str, Any]  # Of the client library: text, numbers, the logger.


def common(bootstrap: str, settings: LogSettings) -> Config:
    """What every client shares."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": settings.client_id,
        "logger": library_log.logger,
        "log.connection.close": False,
        # The library asks for the new leader once, when a connection breaks: before a killed leader is replaced, which
        # takes seconds. Its next look would be minutes later.
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        # The defaults wait up to 10 s between tries: a broker that is back should be found at once.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "socket.nagle.disable": True,
        **_security(settings.security),
    }


def producer(bootstrap: str, settings: LogSettings) -> Config:
    """All acks, zstd, bounded by bytes."""
    return common(bootstrap, settings) | {
        **_KEEP_BROKERS,
        "acks": "all",
        "compression.type": "zstd",
        "enable.idempotence": settings.idempotence,
        # Without sequence numbers a retry would overtake what was sent after it.
        "max.in.flight.requests.per.connection": 5 if settings.idempotence else 1,
        "linger.ms": settings.linger_ms,
        "message.timeout.ms": int(settings.delivery_timeout_s * 1000),
        "request.timeout.ms": int(settings.delivery_timeout_s * 1000),
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "queue.buffering.max.kbytes": max(1, settings.queue_bytes_max // 1024),
        "queue.buffering.max.messages": 1_000_000,
    }


def consumer(bootstrap: str, settings: LogSettings, *, group_id: str, prefetch_bytes: int | None = None) -> Config:
    """No automatic commit, no automatic reset, end-of-partition events, no wait for a committed transaction."""
    prefetch = prefetch_bytes or settings.prefetch_bytes_max
    fetch_bytes = max(FETCH_BYTES_MIN, min(prefetch // 4, 1024 * 1024))
    return common(bootstrap, settings) | {
        **_KEEP_BROKERS,
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "fetch.error.backoff.ms": FETCH_ERROR_BACKOFF_MS,
        "fetch.queue.backoff.ms": 5,  # Its default of a second starves a fast reader.
        "queued.max.messages.kbytes": max(1, prefetch // 1024),
        "fetch.message.max.bytes": fetch_bytes,
    }


def lingering(linger_s: float) -> Config:
    """Fetches that wait so long for more to come: with many partitions each would else be answered for one record."""
    if not linger_s:
        return {}
    return {"fetch.min.bytes": LINGER_BYTES, "fetch.wait.max.ms": max(1, round(linger_s * 1000))}


def _security(security: KafkaSecurity) -> Config:
    values = {
        "security.protocol": security.protocol,
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.sasl_username,
        "sasl.password": security.password(),
        "ssl.ca.location": security.ssl_ca_location,
        "ssl.certificate.location": security.ssl_certificate_location,
        "ssl.key.location": security.ssl_key_location,
        "ssl.key.password": security.ssl_key_password,
    }
    return {key: value for key, value in values.items() if value}
