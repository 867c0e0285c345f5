"""Names of the settings that jobs on Spark use: options of `tsdb spark`, and keywords of `spark_backfill.connect`."""

from __future__ import annotations

from tsdb.config.common import CommonSettings
from tsdb.config.describe import is_secret

# Settings of the log, of history, and those that must match the log. A job without history leaves it empty.
PLACE_SETTINGS = (
    *("config", "log", "log_prefix", "time_set", "placement_labels"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
    *("history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
)
SPARK_SETTINGS = (*PLACE_SETTINGS, "log_level", "log_format")
# A program may set them, but not a secret: programs and notebooks get shown and committed.
KEYWORDS = frozenset(name for name in PLACE_SETTINGS if not is_secret(CommonSettings, name))
