"""`meta` has the settings that all processes share. One record per setting name; the last one counts."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tsdb.log.interface import META, Log
from tsdb.log.records import read_to_end
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings, differences
from tsdb.model.time_set import TimeSet
from tsdb.v1 import records_pb2

SETTINGS_KEY = b"settings"


def read_values(log: Log) -> dict[bytes, bytes]:
    """All of `meta`: the latest value of each key; keys whose latest is a null record are left out."""
    values: dict[bytes, bytes] = {}
    for record in read_to_end(log, META, 0):
        key = record.key or b""
        if record.value is None:
            values.pop(key, None)
        else:
            values[key] = record.value
    return values


def write_meta(log: Log, settings: MetaSettings) -> None:
    """Write the settings, replacing any others."""
    log.append_sync(META, 0, encode_settings(settings), key=SETTINGS_KEY)


def read_meta(log: Log) -> MetaSettings | None:
    """The settings; None when none were written. Raises ConfigMismatch (meta) for a record that does not parse."""
    value = read_values(log).get(SETTINGS_KEY)
    return None if value is None else decode_settings(value)


def require_meta(log: Log) -> MetaSettings:
    """The settings. Raises ConfigMismatch (meta) when none were written, or their record does not parse."""
    stored = read_meta(log)
    if stored is None:
        raise ConfigMismatch("topic meta holds no settings: run `tsdb topics create`", reason="meta")
    return stored


def check_meta(log: Log, expected: MetaSettings) -> None:
    """Raises ConfigMismatch (meta) that names each difference, or that `meta` has no settings."""
    found = differences(expected, require_meta(log))
    if found:
        raise ConfigMismatch(f"settings differ from those in topic meta: {'; '.join(found)}", reason="meta")


def ensure_meta(log: Log, settings: MetaSettings) -> None:
    """Write the settings if `meta` has no settings, then check them. Of two concurrent writers with different settings
    one fails its check."""
    if read_meta(log) is None:
        write_meta(log, settings)
    check_meta(log, settings)


def encode_settings(settings: MetaSettings) -> bytes:
    """Encode the settings as bytes of tsdb.v1.MetaSettings."""
    times = settings.time_set
    message = records_pb2.MetaSettings(
        partitions=settings.partitions,
        placement_labels=settings.placement_labels,
        pack_rule=settings.pack_rule,
        log_record_version=settings.log_record_version,
        series_record_version=settings.series_record_version,
        chunk_version=settings.chunk_version,
        part_bytes_max=settings.part_bytes_max,
        time_set=records_pb2.TimeSet(
            name=times.name,
            window_ms=times.window_ms,
            grace_ms=times.grace_ms,
            ahead_ms=times.ahead_ms,
            gateway_ahead_ms=times.gateway_ahead_ms,
            late_minute_ms=times.late_minute_ms,
            spread_ms=times.spread_ms,
            least_hold_ms=times.least_hold_ms,
            accept_past_ms=times.accept_past_ms,
        ),
    )
    return message.SerializeToString(deterministic=True)


def decode_settings(value: bytes) -> MetaSettings:
    """Raises ConfigMismatch (meta) when the bytes are not a MetaSettings."""
    try:
        message = records_pb2.MetaSettings.FromString(value)
    except DecodeError as error:
        raise ConfigMismatch(f"topic meta: the settings record does not parse: {error}", reason="meta") from error
    times = message.time_set
    return MetaSettings(
        partitions=message.partitions,
        placement_labels=tuple(message.placement_labels),
        pack_rule=message.pack_rule,
        log_record_version=message.log_record_version,
        series_record_version=message.series_record_version,
        chunk_version=message.chunk_version,
        part_bytes_max=message.part_bytes_max,
        time_set=TimeSet(
            times.name,
            times.window_ms,
            times.grace_ms,
            times.ahead_ms,
            times.gateway_ahead_ms,
            times.late_minute_ms,
            times.spread_ms,
            times.least_hold_ms,
            times.accept_past_ms,
        ),
    )
