"""Places: carries the addresses and settings of the log and of history, as a value for tasks and for a data source's
options.

A password in the settings travels with the value. A `..._file` setting, with the file mounted on every machine that
runs tasks, avoids that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tsdb.history.interface import ChunkStore
from tsdb.history.open import open_history
from tsdb.history.settings import CassandraAccess, HistorySettings
from tsdb.log.interface import Log
from tsdb.log.open import open_log
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.model.errors import ConfigMismatch, InvalidRequest

IDLE_READERS_MAX = 4
LOG, LOG_PREFIX, LOG_SETTINGS = "log", "log_prefix", "log_settings"
HISTORY, HISTORY_SETTINGS = "history", "history_settings"


@dataclass(frozen=True, slots=True)
class Places:
    """log, history: URLs in the form of the roles' settings; empty where a job or source does not need them."""

    log: str = ""
    log_prefix: str = ""
    history: str = ""
    log_settings: LogSettings = field(default_factory=LogSettings)
    history_settings: HistorySettings = field(default_factory=HistorySettings)

    def open_log(self) -> Log:
        """Open a new connection. Raises ConfigMismatch (log_url) when `log` is empty."""
        if not self.log:
            raise ConfigMismatch("a log is required: give the option or flag `log`", reason="log_url")
        # Tasks are several processes, and a loader may run beside them: none has an embedded log to itself.
        # Tasks and planners open many short readers, one after the other: two for an item, one for lookups.
        settings = replace(self.log_settings, embedded_guest=True, idle_readers_max=IDLE_READERS_MAX)
        return open_log(self.log, prefix=self.log_prefix, settings=settings)

    def open_history(self) -> ChunkStore:
        """Open a new connection. Raises ConfigMismatch (history_url) when `history` is empty."""
        if not self.history:
            raise ConfigMismatch("a history is required: give the option or flag `history`", reason="history_url")
        return open_history(self.history, self.history_settings)

    def options(self) -> dict[str, str]:
        """Options of the data source, from which `places_of` makes an equal value. Settings are JSON objects."""
        return {
            LOG: self.log,
            LOG_PREFIX: self.log_prefix,
            HISTORY: self.history,
            LOG_SETTINGS: json.dumps(asdict(self.log_settings)),
            HISTORY_SETTINGS: json.dumps(asdict(self.history_settings)),
        }


def places_of(options: Mapping[str, str]) -> Places:
    """Read the places from options of the data source; a missing option has its default. Raises InvalidRequest
    (bad_option)."""
    log, history = _object(options, LOG_SETTINGS), _object(options, HISTORY_SETTINGS)
    try:
        if "security" in log:
            log["security"] = KafkaSecurity(**log["security"])
        if "access" in history:
            history["access"] = CassandraAccess(**history["access"])
        return Places(
            options.get(LOG, ""),
            options.get(LOG_PREFIX, ""),
            options.get(HISTORY, ""),
            LogSettings(**log),
            HistorySettings(**history),
        )
    except TypeError as error:
        raise InvalidRequest(f"options {LOG_SETTINGS}, {HISTORY_SETTINGS}: {error}", reason="bad_option") from error


def _object(options: Mapping[str, str], name: str) -> dict[str, Any]:
    text = options.get(name, "")
    try:
        value = json.loads(text) if text else {}
    except ValueError as error:
        raise InvalidRequest(f"option {name} is no JSON: {error}", reason="bad_option") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"option {name} must be a JSON object; got {text[:80]!r}", reason="bad_option")
    return value
