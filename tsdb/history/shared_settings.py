"""Shared settings of a history, stored in its `shared` table. All processes must have the same values.

A process whose settings differ refuses to start and names each difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Protocol, Self

from tsdb.history.rows import MONTH_MS, SERIES_BUCKETS
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings

SCHEMA_VERSION = 1
HINT = "run `tsdb history create`"


class HistoryAdmin(Protocol):
    """Creates and checks the tables of a history. Raises Unavailable when it does not answer. Context manager."""

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """Create the missing tables, `shared` included. Returns whether any was missing. Existing ones stay unchanged.

        replication: copies of each row, if the history supports copies; None: its default. ttl_days: drop rows this
        long after their write, by whole files; None: keep them. Raises InvalidRequest (no_ttl) if it has no TTL.
        """

    def differences(self) -> list[str]:
        """One line for each table or column that is missing or differs; empty without a difference."""

    def shared(self) -> dict[str, str]:
        """The shared settings that the history was created with; empty without any. Needs the `shared` table."""

    def close(self) -> None:
        """Release the connection. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def shared_rows(settings: MetaSettings) -> dict[str, str]:
    """Every shared setting as text, such as `time_set.window_ms`, and the constants of row keys."""
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
    """One line for each difference of tables and of shared settings; empty without a difference."""
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
    """Create the missing tables, then check. For a process that is the only user of its history."""
    admin.create(shared_rows(settings))
    check_history(admin, settings)


def _prefixed(prefix: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{prefix}{name}": value for name, value in values.items()}
