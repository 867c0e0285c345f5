"""Settings: builds the client library's settings for a source or a producer, and refuses some. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.kafka.start import StartRule

# Values required by a source, and why another value is refused.
_FIXED: Mapping[str, tuple[bool, str]] = {
    "enable.auto.commit": (False, "positions are committed once their records are finished, not once they are read"),
    "auto.commit.enable": (False, "positions are committed once their records are finished, not once they are read"),
    "enable.auto.offset.store": (
        False,
        "positions are committed once their records are finished, not once they are read",
    ),
    "enable.partition.eof": (True, "the consumer must see the end of a partition"),
}
_REQUIRED: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
_RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
}
_ASSIGNMENT = "partition.assignment.strategy"
_COOPERATIVE = "cooperative-sticky"
# With group.protocol=consumer (KIP-848) these are group settings on the brokers, not settings of a member.
_OF_THE_BROKERS = (_ASSIGNMENT, "session.timeout.ms", "heartbeat.interval.ms", "group.protocol.type")

_POLL_INTERVAL = "max.poll.interval.ms"
_SESSION = "session.timeout.ms"
_HEARTBEAT = "heartbeat.interval.ms"
_DEFAULT_MS = {_POLL_INTERVAL: 300_000, _SESSION: 45_000, _HEARTBEAT: 3_000}  # Defaults of the library.

# These are better than the library's defaults; a caller's settings win. With 50 ms between connections a client
# connects, and logs, 20 times a second while all brokers are away.
RECONNECTING: Mapping[str, object] = {"reconnect.backoff.ms": 500, "reconnect.backoff.max.ms": 5_000}
# The library fetches a partition again this long after its topic is gone or has a new id; `Incarnations` relies on it.
FETCH_BACKOFF = "fetch.error.backoff.ms"
FETCH_BACKOFF_MS_LEAST = 100
_CONSUMER: Mapping[str, object] = {
    **RECONNECTING,
    FETCH_BACKOFF: 500,
    "fetch.queue.backoff.ms": 5,
    "topic.metadata.refresh.interval.ms": 10_000,
}
_OF_CONNECTIONS = (
    "api.",
    "bootstrap.",
    "broker.",
    "connections.",
    "enable.ssl.",
    "error_cb",
    "https.",
    "log",
    "metadata.broker.list",
    "metadata.recovery.",
    "oauth_cb",
    "reconnect.",
    "retry.backoff.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)


def consumer_settings(config: Mapping[str, object], rule: StartRule) -> dict[str, object]:
    """Settings of a group member. Raises InvalidConfig, which names the setting, for one that contradicts the
    consumer."""
    _need(config, "group.id")
    of_topics = config.get("default.topic.config")
    given = {**(of_topics if isinstance(of_topics, Mapping) else {}), **config}
    for name, (wanted, why) in _FIXED.items():
        if name in given and _as_bool(given[name]) is not wanted:
            raise _refused(name, given[name], f"{why}; leave it out")
    _check_reset(given, rule)
    rest = {name: value for name, value in config.items() if name not in ("default.topic.config", "auto.commit.enable")}
    settings = {**_CONSUMER, **rest, **_REQUIRED, **_of_protocol(given)}
    _check_times(settings)
    return settings


def check_drains(config: Mapping[str, object], drains_s: Mapping[str, float]) -> None:
    """Raises InvalidConfig for a drain, by option, that takes longer than the group waits for a poll.

    A drain polls nothing, so the brokers expel the member after max.poll.interval.ms: it could commit nothing more.
    """
    poll_ms = _ms(config, _POLL_INTERVAL)
    for name, seconds in drains_s.items():
        if seconds * 1000 >= poll_ms:
            raise InvalidConfig(
                f"{name}={seconds:g} is refused: a member that drains does not poll, and the group expels it after"
                f" {_POLL_INTERVAL}={poll_ms}; lower {name} below {poll_ms / 1000:g}, or raise {_POLL_INTERVAL}",
                reason="setting",
            )


def producer_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Settings of a producer. Raises InvalidConfig for acknowledgements that could lose dead letters."""
    _need(config)
    for name in ("acks", "request.required.acks"):
        if name in config and str(config[name]) not in ("all", "-1"):
            raise _refused(name, config[name], "a dead letter is durable once all replicas have it; leave it out")
    rest = {name: value for name, value in config.items() if name != "request.required.acks"}
    return {**RECONNECTING, "enable.idempotence": True, **rest, "acks": "all"}


def connection_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Connection and authentication settings, valid for any client of the same brokers."""
    settings = {
        name: value for name, value in config.items() if name.startswith(_OF_CONNECTIONS) or name == "client.id"
    }
    return {**RECONNECTING, **settings}


def _of_protocol(given: Mapping[str, object]) -> dict[str, object]:
    protocol = str(given.get("group.protocol", "classic")).lower()
    if protocol == "consumer":
        for name in _OF_THE_BROKERS:
            if name in given:
                why = "with group.protocol=consumer the brokers decide it (settings of the group); leave it out"
                raise _refused(name, given[name], why)
        return {}
    if protocol != "classic":
        raise _refused("group.protocol", given["group.protocol"], "there are classic and consumer")
    if given.get(_ASSIGNMENT, _COOPERATIVE) != _COOPERATIVE:
        why = f"only {_COOPERATIVE} hands over partitions while others go on; leave it out"
        raise _refused(_ASSIGNMENT, given[_ASSIGNMENT], why)
    return {_ASSIGNMENT: _COOPERATIVE}


def _check_times(settings: Mapping[str, object]) -> None:
    """Refuse times that contradict each other."""
    backoff_ms = _ms(settings, FETCH_BACKOFF)
    if backoff_ms < FETCH_BACKOFF_MS_LEAST:
        why = f"at least {FETCH_BACKOFF_MS_LEAST}: within it a re-created topic is noticed before it is read"
        raise _refused(FETCH_BACKOFF, backoff_ms, why)
    if str(settings.get("group.protocol", "classic")).lower() != "classic":
        return  # The brokers decide session and heartbeat.
    # The library refuses the second pair too, but only when the consumer's thread starts.
    for lower, upper in ((_HEARTBEAT, _SESSION), (_SESSION, _POLL_INTERVAL)):
        low, high = _ms(settings, lower), _ms(settings, upper)
        if low > high or (low == high and lower == _HEARTBEAT):
            raise _refused(lower, low, f"it is above {upper}={high}: the group would expel the member; lower it")


def _ms(settings: Mapping[str, object], name: str) -> int:
    value = settings.get(name, _DEFAULT_MS.get(name))
    try:
        return int(str(value))
    except ValueError:
        raise _refused(name, value, "it is a whole number of milliseconds") from None


def _check_reset(given: Mapping[str, object], rule: StartRule) -> None:
    """auto.offset.reset may only repeat the start rule; lost offsets never reset."""
    reset = str(given.get("auto.offset.reset", "error")).lower()
    if reset != "error" and _RESETS.get(reset) != rule.name:
        why = (
            f"start={rule} decides where a partition without a commit begins, and offsets that the log no longer holds"
            ' end the consumer; leave it out, and give start="earliest", "latest" or a time'
        )
        raise _refused("auto.offset.reset", given["auto.offset.reset"], why)


def _need(config: Mapping[str, object], *names: str) -> None:
    if not (config.get("bootstrap.servers") or config.get("metadata.broker.list")):
        raise InvalidConfig("bootstrap.servers is missing: give host:port of a broker", reason="setting")
    for name in names:
        if not config.get(name):
            raise InvalidConfig(f"{name} is missing", reason="setting")


def _as_bool(value: object) -> bool | None:
    text = str(value).strip().lower()
    return True if text in ("true", "1", "t") else False if text in ("false", "0", "f") else None


def _refused(name: str, value: object, why: str) -> InvalidConfig:
    return InvalidConfig(f"{name}={value} is refused: {why}", reason="setting")
