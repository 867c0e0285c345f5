"""Builds the shadow of a querier, and refuses one that cannot be: the querier, one of its stores, or another log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tsdb.client.channel import ClientTls
from tsdb.config.trials import ShadowFields, fraction
from tsdb.config.types import HostPort, host_port
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.ops.logs import get_logger
from tsdb.query.shadow.kept import KeptPairs
from tsdb.query.shadow.shadow import Shadow, ShadowOptions
from tsdb.query.shadow.target import ShadowTarget
from tsdb.query.stores.pool import StoreAddress, resolve
from tsdb.roles.caller_token import caller_token
from tsdb.roles.servers import listens_at

log = get_logger(__name__)


def make_shadow(
    fields: ShadowFields, topic_id: str, listen: HostPort, stores: Iterable[StoreAddress] = ()
) -> Shadow | None:
    """The shadow; None without one. listen, stores: addresses of this querier.

    Raises ConfigMismatch (shadow_self, shadow_production, shadow_log, shadow_dir, shadow_token). A shadow that does not
    answer is not an error.
    """
    if not fields.shadow:
        return None
    _refuse_production(host_port(fields.shadow), listen, stores)
    tls = ClientTls(fields.shadow_tls_ca_file) if fields.shadow_tls else None
    target = ShadowTarget(
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


def _refuse_production(shadow: HostPort, listen: HostPort, stores: Iterable[StoreAddress]) -> None:
    if listens_at(listen, shadow):
        raise ConfigMismatch(
            f"shadow {shadow} is the address of this querier: give another querier or store", reason="shadow_self"
        )
    places = _places(StoreAddress(shadow.host, shadow.port))
    for store in stores:
        if places & _places(store):
            raise ConfigMismatch(
                f"shadow {shadow} is {store}, a store that this querier reads, so every answer would be equal: give"
                " another querier, or the store of an experiment",
                reason="shadow_production",
            )


def _places(name: StoreAddress) -> set[StoreAddress]:
    """The name and its addresses, as far as they are known now."""
    try:
        return {name, *resolve(name)}
    except OSError:
        return {name}


def _kept(fields: ShadowFields) -> KeptPairs | None:
    if not fields.shadow_dir:
        return None
    try:
        return KeptPairs(Path(fields.shadow_dir), fields.shadow_kept_max)
    except OSError as error:
        raise ConfigMismatch(f"shadow_dir: {error}", reason="shadow_dir") from error
