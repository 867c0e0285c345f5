"""The log of a role: opens it, checks it against the settings that all processes share, and closes it last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tsdb.config import WorkerSettings
from tsdb.config.chunker import ChunkerFields
from tsdb.config.gateway import GatewayFields
from tsdb.config.loader import LoaderFields
from tsdb.config.trials import ExperimentFields
from tsdb.log.interface import METRICS, Log
from tsdb.log.meta import check_meta
from tsdb.log.open import naming_log, open_log, open_topics
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.log.topic_watch import TopicWatch
from tsdb.log.topics import require_topics, topic_specs
from tsdb.model.meta import MetaSettings
from tsdb.ops.lifecycle import Component

# Begins the client id of an experiment, so that brokers can give it a quota that production does not share.
EXPERIMENT_CLIENT = "tsdb-experiment-"
# A record of a request has a few KB, mostly series ids. The client library sets up a new context for each batch, which
# took zstd 45 us of CPU a record here and 24 us in each reader. lz4 makes the records 2 to 5 % larger.
GATEWAY_COMPRESSION = "lz4"


@contextmanager
def connected(settings: WorkerSettings) -> Iterator[Log]:
    """Does what `connect` does, and closes the log when the role cannot be opened over it. Then the opening is retried,
    or the process ends."""
    log = connect(settings)
    try:
        yield log
    except BaseException:
        log.close()
        raise


def connect(settings: WorkerSettings) -> Log:
    """The log, after a check of its topics and of the settings that all processes share."""
    with naming_log(settings.log):
        return _connect(settings)


def _connect(settings: WorkerSettings) -> Log:
    access = log_settings(settings)
    log = open_log(settings.log, prefix=settings.log_prefix, settings=access)
    try:
        with open_topics(settings.log, prefix=settings.log_prefix, settings=access) as admin:
            # The operator chooses the number of replicas; `topics create` has checked it.
            require_topics(
                admin, topic_specs(log.partitions(METRICS), replication=1, retention_ms=settings.times.least_hold_ms)
            )
        check_meta(log, meta_settings(settings, log.partitions(METRICS)))
    except BaseException:
        log.close()
        raise
    return log


class LogComponent(Component):
    """Closes the log after all components that use it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def join(self, timeout_s: float) -> bool:
        """Close the log, which answers waiting appends."""
        self._log.close()
        return True

    def abort(self) -> None:
        self._log.close()


def topic_watch(settings: WorkerSettings, log: Log) -> TopicWatch:
    """The watch of the log's topics."""
    open_admin = partial(open_topics, settings.log, prefix=settings.log_prefix, settings=log_settings(settings))
    return TopicWatch(log, open_admin, settings.times)


def log_settings(settings: WorkerSettings) -> LogSettings:
    """This process's settings of the log client."""
    security = KafkaSecurity(
        protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=settings.kafka_sasl_password.get_secret_value() if settings.kafka_sasl_password else "",
        sasl_password_file=str(settings.kafka_sasl_password_file or ""),
        ssl_ca_location=str(settings.kafka_ssl_ca_file or ""),
        ssl_certificate_location=str(settings.kafka_ssl_certificate_file or ""),
        ssl_key_location=str(settings.kafka_ssl_key_file or ""),
    )
    if isinstance(settings, GatewayFields):
        return LogSettings(
            security=security,
            delivery_timeout_s=settings.produce_timeout_s,
            idempotence=settings.idempotence,
            compression=GATEWAY_COMPRESSION,
            embedded_claim=True,
        )
    if isinstance(settings, ExperimentFields) and settings.experiment:
        return LogSettings(security=security, client_id=f"{EXPERIMENT_CLIENT}{settings.experiment}")
    return LogSettings(security=security, embedded_claim=isinstance(settings, ChunkerFields | LoaderFields))


def meta_settings(settings: WorkerSettings, partitions: int) -> MetaSettings:
    """The values of this process for the settings that all processes share."""
    return MetaSettings(partitions, placement_labels=settings.placement_labels, time_set=settings.times)
