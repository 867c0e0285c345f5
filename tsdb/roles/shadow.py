"""Builds the shadow of a querier, and refuses one that cannot be: the querier itself, or another log."""

from __future__ import annotations

import socket
from pathlib import Path

from tsdb.client.channel import ClientTls
from tsdb.config.shadow import ShadowFields, fraction
from tsdb.config.types import host_port
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.ops.logs import get_logger
from tsdb.query.shadow.kept import KeptPairs
from tsdb.query.shadow.shadow import Shadow, ShadowOptions
from tsdb.query.shadow.target import Target
from tsdb.roles.caller_token import caller_token

log = get_logger(__name__)


def make_shadow(fields: ShadowFields, topic_id: str, grpc_port: int) -> Shadow | None:
    """The shadow; None without one. grpc_port: of this querier.

    Raises ConfigMismatch (shadow_self, shadow_log, shadow_dir, shadow_token). A shadow that is away is no obstacle.
    """
    if not fields.shadow:
        return None
    _refuse_itself(fields.shadow, grpc_port)
    tls = ClientTls(fields.shadow_tls_ca_file) if fields.shadow_tls else None
    target = Target(
        fields.shadow,
        topic_id,
        tls=tls,
        token=caller_token(fields.shadow_token, fields.shadow_token_file, "shadow_token_file", "shadow_token"),
        timeout_s=fields.shadow_timeout_s,
        bytes_max=fields.shadow_bytes_max,
    )
    try:
        target.check_log()
    except ConfigMismatch:
        target.close()
        raise
    except TsdbError as error:
        log.warning("shadow is away", shadow=fields.shadow, reason=error.reason, error=error.message)
    options = ShadowOptions(fraction(fields.share), fields.shadow_bytes_max, _kept(fields))
    return Shadow(target, options, SystemClock())


def _refuse_itself(shadow: str, grpc_port: int) -> None:
    place = host_port(shadow)
    if place.port == grpc_port and any(_is_here(host) for host in _addresses(place.host)):
        raise ConfigMismatch(
            f"shadow {shadow} is the address of this querier: give another querier or store", reason="shadow_self"
        )


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)}
    except OSError:
        return set()  # Not known now: then nothing answers there either.


def _is_here(address: str) -> bool:
    """Whether the address is one of this machine: only then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _kept(fields: ShadowFields) -> KeptPairs | None:
    if not fields.shadow_dir:
        return None
    try:
        return KeptPairs(Path(fields.shadow_dir), fields.shadow_kept_max)
    except OSError as error:
        raise ConfigMismatch(f"shadow_dir: {error}", reason="shadow_dir") from error
