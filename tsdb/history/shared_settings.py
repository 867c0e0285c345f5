"""What a history was made for: the settings that all must share, as its `shared` table keeps them.

A process whose settings differ from those refuses to start and says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Protocol, Self

from tsdb.history.row_keys import MONTH_MS, SERIES_BUCKETS
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings

SCHEMA_VERSION = 1
HINT = "run `tsdb history create`"


class HistoryAdmin(Protocol):
    """Makes the tables of a history and looks at them. Raises Unavailable when it does not answer. Context manager."""

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """Make what is missing, `shared` included; returns whether anything was. What is there stays as it is.

        replication: copies of each row, where the history has such a thing; None: one. ttl_days: drop rows so long
        after they were written, by whole files; None: keep them. Raises InvalidRequest (no_ttl) where it cannot.
        """

    def differences(self) -> list[str]:
        """One line for each table or column that is missing or is not as it must be; empty when all is well."""

    def shared(self) -> dict[str, str]:
        """The shared settings it was made with; empty when it was not. Needs its table."""

    def close(self) -> None:
        """Release; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def shared_rows(settings: MetaSettings) -> dict[str, str]:
    """Every shared setting as text, `time_set.window_ms` and the like, and what row keys are made with."""
    rows = {"schema_version": SCHEMA_VERSION, "month_ms": MONTH_MS, "series_buckets": SERIES_BUCKETS}
    values = asdict(settings)
    times = values.pop("time_set")
    values["placement_labels"] = ",".join(settings.placement_labels)
    return {name: str(value) for name, value in {**rows, **values, **_prefixed("time_set.", times)}.items()}


def check_history(admin: HistoryAdmin, settings: MetaSettings) -> None:
    """Raises ConfigMismatch (history_schema, history_settings) with every difference."""
    found = history_differences(admin, settings)
    if found:
        raise ConfigMismatch(f"history is not as it must be: {'; '.join(found)}", reason="history_schema")


def history_differences(admin: HistoryAdmin, settings: MetaSettings) -> list[str]:
    """One line for each difference of tables and of shared settings; empty when all is well."""
    found = admin.differences()
    if found:
        return found
    stored = admin.shared()
    if not stored:
        return [f"no shared settings are there: {HINT}"]
    return [
        f"{name}: this process has {value}, history was made with {stored.get(name, 'none')}"
        for name, value in shared_rows(settings).items()
        if stored.get(name) != value
    ]


def ensure_history(admin: HistoryAdmin, settings: MetaSettings) -> None:
    """Make what is missing, then check: for a process that has its history to itself."""
    admin.create(shared_rows(settings))
    check_history(admin, settings)


def _prefixed(prefix: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{prefix}{name}": value for name, value in values.items()}
