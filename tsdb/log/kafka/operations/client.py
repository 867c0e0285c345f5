"""kafka-python's admin client: opens it from LogSettings, and translates its errors to TsdbError.

librdkafka has neither reassignments (KIP-455) nor the sizes of log directories, so this package uses a second client.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

with warnings.catch_warnings():
    # It reads its protocol files by a function that Python 3.11 and 3.12 deprecate and 3.13 does not.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
    from kafka.errors import BrokerResponseError, KafkaConfigurationError, KafkaError

from tsdb.log.kafka.errors import RETRY_AFTER_S, to_error
from tsdb.log.settings import LogSettings
from tsdb.model.errors import ConfigMismatch, Unavailable

__all__ = [
    "AlterConfigOp",
    "Client",
    "ConfigResource",
    "ConfigResourceType",
    "TopicPartition",
    "client_settings",
    "code_error",
    "open_client",
    "translate_errors",
]

# The library logs each failed connection as an error. The command reports the outage by its own error.
logging.getLogger("kafka").addHandler(logging.NullHandler())
logging.getLogger("kafka").propagate = False

Client = Any  # The library has no types.


def open_client(bootstrap: str, settings: LogSettings) -> Client:
    """A connected client. Raises Unavailable (log_unavailable) when no broker answers within the request timeout."""
    with translate_errors(f"brokers {bootstrap}"):
        return KafkaAdminClient(**client_settings(bootstrap, settings))


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise kafka-python's exceptions as TsdbError, by the same table of codes as those of librdkafka."""
    try:
        yield
    except BrokerResponseError as error:
        code = confluent_kafka.KafkaError.UNKNOWN if error.errno is None else error.errno
        raise to_error(confluent_kafka.KafkaError(code, str(error)), where) from error
    except KafkaConfigurationError as error:
        raise ConfigMismatch(f"{where}: {error}", reason="log_settings") from error
    except KafkaError as error:
        raise Unavailable(f"{where}: {error}", reason="log_unavailable", retry_after_s=RETRY_AFTER_S) from error


def code_error(code: int, where: str) -> Exception:
    """The TsdbError for a code of Kafka's protocol."""
    return to_error(confluent_kafka.KafkaError(code), where)


def client_settings(bootstrap: str, settings: LogSettings) -> dict[str, Any]:
    """Settings of the admin client. Secrets pass through and are never logged."""
    timeout_ms = int(settings.request_timeout_s * 1000)
    security = settings.security
    values = {
        "security_protocol": security.protocol,
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.sasl_username,
        "sasl_plain_password": security.password(),
        "ssl_cafile": security.ssl_ca_location,
        "ssl_certfile": security.ssl_certificate_location,
        "ssl_keyfile": security.ssl_key_location,
        "ssl_password": security.ssl_key_password,
    }
    return {
        "bootstrap_servers": bootstrap.split(","),
        "client_id": settings.client_id,
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
        **{key: value for key, value in values.items() if value},
    }
