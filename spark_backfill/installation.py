"""Installation: the log, the history and the shared settings that jobs work on. It holds no connection."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_backfill.building.options import BuildOptions
    from spark_backfill.places import Places
    from tsdb.config import CommonSettings
    from tsdb.model.meta import MetaSettings

# Modules are imported in the functions: `import spark_backfill` shall take milliseconds, also in a task.


def connect(
    *,
    log: str | None = None,
    history: str | None = None,
    config: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Installation:
    """The installation of these settings, after a check of log and history.

    log, history: URLs such as kafka://HOST:PORT and cassandra://HOST/KEYSPACE, or sqlite:///PATH. config: a TOML file.
    settings: others of docs/config.md that concern log and history, by name, such as kafka_security_protocol or
    time_set. As in commands, a keyword wins over a TSDB_* variable, a variable over the file. Passwords come from a
    variable or from a setting that names a file.

    Raises InvalidRequest (unknown_setting, bad_setting, config_file) and as `Installation.checked`.
    """
    from tsdb.config.common import CommonSettings
    from tsdb.config.load import KEYWORDS, load, refuse_unknown

    refuse_unknown(settings, KEYWORDS, "keyword {key}")
    given = {"log": log, "history": history, "config": None if config is None else os.fspath(config), **settings}
    installation = Installation(load(CommonSettings, given, "{}=...".format))
    installation.checked()
    return installation


@dataclass(frozen=True, slots=True, repr=False)
class Installation:
    """settings: those of log and history. Any number of jobs, sessions and threads may use the value."""

    settings: CommonSettings

    def __repr__(self) -> str:
        return f"Installation(log={self.settings.log!r}, history={self.settings.history!r})"

    @property
    def places(self) -> Places:
        """Addresses and settings of log and history for tasks."""
        from spark_backfill.places import Places
        from tsdb.roles.log import log_settings

        settings = self.settings
        return Places(
            settings.log, settings.log_prefix, settings.history, log_settings(settings), settings.history_settings()
        )

    @property
    def options(self) -> dict[str, str]:
        """Options of the data source: `spark.read.format("tsdb").options(**installation.options)`."""
        return self.places.options()

    def checked(self, *, history: bool = False) -> MetaSettings:
        """The settings that all processes of the log share, after the check that each role makes at its start.

        history: a history is required. Raises ConfigMismatch when topics, `meta` or a given history differ from these
        settings, or when a required history is not given (history_url); Unavailable while one of them is away.
        """
        from tsdb.history.open import open_history_admin
        from tsdb.history.shared_settings import check_history
        from tsdb.log.interface import METRICS
        from tsdb.roles.log import connect as connect_log
        from tsdb.roles.log import meta_settings

        settings = self.settings
        with connect_log(settings) as log:
            shared = meta_settings(settings, log.partitions(METRICS))
        if history:
            settings.required_history()
        if settings.history:
            with open_history_admin(settings.history, settings.history_settings()) as admin:
                check_history(admin, shared)
        return shared

    def build_options(self, shared: MetaSettings) -> BuildOptions:
        """Options of tasks that build chunks of the log's current topic. shared: as `checked` returns it."""
        from spark_backfill.building.options import BuildOptions
        from tsdb.log.interface import METRICS
        from tsdb.model.time_set import slice_lengths

        places, times = self.places, shared.time_set
        with places.open_log() as log:
            topic_id = log.topic_id(METRICS)
        return BuildOptions(places, topic_id, times, slice_lengths(times.name), shared.part_bytes_max)
