"""Settings: each role has one frozen class, filled from flags, TSDB_* variables, a TOML file and defaults, in this
order.

`load` creates them; inner modules get plain values. docs/config.md is generated from these classes.
"""

from tsdb.config.canary import CanarySettings
from tsdb.config.chunker import ChunkerSettings
from tsdb.config.common import CommonSettings, HistoryFields, ProcessSettings, ServiceSettings, WorkerSettings
from tsdb.config.describe import Flag, changed, effective, flags
from tsdb.config.gateway import GatewaySettings
from tsdb.config.load import ROLES, load
from tsdb.config.loader import LoaderSettings
from tsdb.config.querier import QuerierSettings
from tsdb.config.ruler import RulerSettings
from tsdb.config.standalone import StandaloneSettings
from tsdb.config.store import StoreSettings

__all__ = [
    "ROLES",
    "CanarySettings",
    "ChunkerSettings",
    "CommonSettings",
    "Flag",
    "GatewaySettings",
    "HistoryFields",
    "LoaderSettings",
    "ProcessSettings",
    "QuerierSettings",
    "RulerSettings",
    "ServiceSettings",
    "StandaloneSettings",
    "StoreSettings",
    "WorkerSettings",
    "changed",
    "effective",
    "flags",
    "load",
]
