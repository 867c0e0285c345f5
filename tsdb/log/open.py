"""Opens a log, or its topics, by URL: `kafka://host:port[,host:port]` or `sqlite:///path`.

Each kind is imported where it is opened, because a process has one kind: librdkafka takes 5 MiB and 0.1 s of CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tsdb.log.interface import Log
from tsdb.log.settings import LogSettings
from tsdb.log.topics import TopicAdmin
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import ConfigMismatch, Unavailable
from tsdb.model.secrets import masked, url_names_a_user

KAFKA = "kafka://"
SQLITE = "sqlite:///"
_SILENT = "log_unavailable"


def open_log(url: str, *, prefix: str = "", settings: LogSettings | None = None, clock: Clock | None = None) -> Log:
    """The log at a URL. Needs no broker to answer yet. Raises ConfigMismatch (log_url)."""
    settings, clock = settings or LogSettings(), clock or SystemClock()
    if url.startswith(KAFKA):
        from tsdb.log.kafka.log import KafkaLog

        return KafkaLog(kafka_brokers(url), prefix, settings, clock)
    from tsdb.log.sqlite.log import SqliteLog

    return SqliteLog(_path(url), prefix, settings, clock)


def open_topics(
    url: str, *, prefix: str = "", settings: LogSettings | None = None, clock: Clock | None = None
) -> TopicAdmin:
    """Topic administration at a URL. Raises ConfigMismatch (log_url)."""
    settings, clock = settings or LogSettings(), clock or SystemClock()
    if url.startswith(KAFKA):
        from tsdb.log.kafka.admin import KafkaTopics

        return KafkaTopics(kafka_brokers(url), prefix, settings, clock)
    from tsdb.log.sqlite.admin import SqliteTopics

    return SqliteTopics(_path(url), prefix)


def kafka_brokers(url: str) -> str:
    """The brokers of a kafka:// URL, as host:port[,host:port]. Raises ConfigMismatch (log_url) for any other URL."""
    if not url.startswith(KAFKA):
        raise ConfigMismatch(f"log URL {masked(url)!r} names no brokers; want kafka://host:port", reason="log_url")
    if url_names_a_user(url):
        raise _bad(url, "it names a user; credentials belong into the settings")
    brokers = url.removeprefix(KAFKA).rstrip("/").split(",")
    for broker in brokers:
        host, _, port = broker.rpartition(":")
        if not host or not port.isdigit():
            raise _bad(url, f"{broker!r} is not host:port")
    return ",".join(brokers)


@contextmanager
def naming_log(url: str) -> Iterator[None]:
    """Errors of a log that does not answer name its address and the next step."""
    try:
        yield
    except Unavailable as error:
        if error.reason != _SILENT or not url.startswith(KAFKA) or masked(url) in error.message:
            raise
        text = f"no broker answers at {masked(url)}: check that Kafka runs there, or correct the setting log (--log)"
        raise Unavailable(f"{text}; {error.message}", reason=error.reason, retry_after_s=error.retry_after_s) from error


def _path(url: str) -> Path:
    if not url.startswith(SQLITE):
        raise _bad(url, "it starts with neither kafka:// nor sqlite:///")
    path = url.removeprefix(SQLITE)
    if not path:
        raise _bad(url, "it names no file")
    # A URL with three slashes has a relative path; a fourth slash makes it absolute, as in SQLAlchemy.
    return Path(path)


def _bad(url: str, why: str) -> ConfigMismatch:
    return ConfigMismatch(
        f"log URL {masked(url)!r}: {why}; want kafka://host:port[,host:port] or sqlite:///path", reason="log_url"
    )
