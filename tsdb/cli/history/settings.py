"""The settings of history, for commands that need only history."""

from __future__ import annotations

from tsdb.config import CommonSettings

HISTORY_SETTINGS = (
    *("config", "history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
)


class ToolSettings(CommonSettings):
    """Settings of commands that need history only, without a log."""

    log: str = ""
