"""The roles, their settings classes, and all known keys."""

from __future__ import annotations

from tsdb.config.canary import CanarySettings
from tsdb.config.chunker import ChunkerSettings
from tsdb.config.common import ProcessSettings
from tsdb.config.gateway import GatewaySettings
from tsdb.config.loader import LoaderSettings
from tsdb.config.querier import QuerierSettings
from tsdb.config.standalone import StandaloneSettings
from tsdb.config.store import StoreSettings

ROLES: dict[str, type[ProcessSettings]] = {
    "gateway": GatewaySettings,
    "store": StoreSettings,
    "chunker": ChunkerSettings,
    "loader": LoaderSettings,
    "querier": QuerierSettings,
    "canary": CanarySettings,
    "standalone": StandaloneSettings,
}


def known_keys() -> frozenset[str]:
    """Names of all settings of all roles."""
    return frozenset(name for settings in ROLES.values() for name in settings.model_fields)
