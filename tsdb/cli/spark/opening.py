"""Opens the log and history of a job, after a check of the settings that all processes share."""

from __future__ import annotations

from tsdb.config import CommonSettings
from tsdb.model.meta import MetaSettings

# Settings of the log, of history, and those that must match the log. A job without history leaves it empty.
SPARK_SETTINGS = (
    *("config", "log", "log_prefix", "time_set", "placement_labels"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
    *("history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
    *("log_level", "log_format"),
)


def checked(settings: CommonSettings) -> MetaSettings:
    """The settings that all processes of the log share.

    Raises ConfigMismatch when topics, `meta` or a given history differ from this process' settings, and Unavailable
    while one of them is away.
    """
    # Imported here, as in all of `tsdb.cli`, since most commands do not need it.
    from tsdb.history.open import open_history_admin
    from tsdb.history.shared_settings import check_history
    from tsdb.log.interface import METRICS
    from tsdb.roles.log import connect, meta_settings

    with connect(settings) as log:
        shared = meta_settings(settings, log.partitions(METRICS))
    if settings.history:
        with open_history_admin(settings.history, settings.history_settings()) as admin:
            check_history(admin, shared)
    return shared
