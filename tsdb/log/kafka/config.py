"""Settings of confluent-kafka's clients, made from LogSettings. Secrets pass through and are never logged."""

from __future__ import annotations

from typing import Any

from tsdb.log.kafka import library_log
from tsdb.log.settings import KafkaSecurity, LogSettings

MESSAGE_BYTES_MAX = 2 * 1024 * 1024  # A log record is at most 1 MiB; compressed noise and framing are a little more.
FETCH_BYTES_MIN = 256 * 1024
METADATA_REFRESH_MS = 3_000
LINGER_BYTES = 1 << 20  # A fetch with this many bytes does not wait.
# Length of an idle fetch of a short read. A broker reports the end of a partition, and begins a new assignment, only
# after it.
FETCH_WAIT_MS = 100
# Length of an idle fetch of a client that stays at the end. A record ends it at once.
FETCH_WAIT_FOLLOWING_MS = 500
# Wait of readers that follow each other on one connection. A reader would begin with the wait for the last one's idle
# fetch.
FETCH_WAIT_SHORT_MS = 5
# The library fetches a partition again this long after its topic is gone or has a new id. `TopicGuard` relies on it.
FETCH_ERROR_BACKOFF_MS = 500

Config = dict[str, Any]  # Settings of the client library: text, numbers, the logger.


def common(bootstrap: str, settings: LogSettings) -> Config:
    """Settings that all clients share."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": settings.client_id,
        "logger": library_log.logger,
        "log.connection.close": False,
        # The library requests the new leader only once, when a connection breaks. A killed leader is replaced seconds
        # later, and by default the next request comes only after minutes.
        "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
        # With all brokers away the library begins again from the bootstrap servers, which costs two threads a try: at
        # the default of 50 ms a store used a sixth of a core. `metadata.recovery.strategy` "none" starts no threads,
        # but a client that has lost all brokers never finds one again: the first answer after an outage may list none.
        # By default up to 10 s pass between tries; a broker that is back should be found sooner.
        "reconnect.backoff.ms": 1_000,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "socket.nagle.disable": True,
        **_security(settings.security),
    }


def producer(bootstrap: str, settings: LogSettings) -> Config:
    """Producer with all acks, its queue bounded by bytes."""
    return common(bootstrap, settings) | {
        "acks": "all",
        "compression.type": settings.compression,
        "enable.idempotence": settings.idempotence,
        # Without sequence numbers a retry could land after a record sent later.
        "max.in.flight.requests.per.connection": 5 if settings.idempotence else 1,
        "linger.ms": settings.linger_ms,
        "message.timeout.ms": int(settings.delivery_timeout_s * 1000),
        "request.timeout.ms": int(settings.delivery_timeout_s * 1000),
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "queue.buffering.max.kbytes": max(1, settings.queue_bytes_max // 1024),
        "queue.buffering.max.messages": 1_000_000,
    }


def consumer(bootstrap: str, settings: LogSettings, *, group_id: str, prefetch_bytes: int | None = None) -> Config:
    """Consumer without automatic commit or reset, with end-of-partition events, not waiting for transactions."""
    prefetch = prefetch_bytes or settings.prefetch_bytes_max
    wait_ms = FETCH_WAIT_FOLLOWING_MS if prefetch_bytes is None else FETCH_WAIT_MS
    fetch_bytes = max(FETCH_BYTES_MIN, min(prefetch // 4, 1024 * 1024))
    return common(bootstrap, settings) | {
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "fetch.wait.max.ms": FETCH_WAIT_SHORT_MS if settings.idle_readers_max else wait_ms,
        "fetch.error.backoff.ms": FETCH_ERROR_BACKOFF_MS,
        "fetch.queue.backoff.ms": 5,  # Its default of a second starves a fast reader.
        "queued.max.messages.kbytes": max(1, prefetch // 1024),
        "fetch.message.max.bytes": fetch_bytes,
    }


def lingering(linger_s: float) -> Config:
    """Fetches that wait up to linger_s for more: with many partitions a fetch would else return for each record."""
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
