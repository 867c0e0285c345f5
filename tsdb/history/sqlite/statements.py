"""The statements of an embedded history."""

from __future__ import annotations

PUT_CHUNK = (
    "INSERT INTO chunks (pack_id, window_start, ord, kind, part, value) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET value = excluded.value"
)
DELETE_CHUNK = "DELETE FROM chunks WHERE pack_id = ? AND window_start = ? AND ord = ? AND kind = ? AND part = ?"
_CHUNK_COLUMNS = "SELECT pack_id, window_start, ord, kind, part, {} FROM chunks WHERE "
_OF_PACK = "pack_id = ? AND window_start >= ? AND window_start < ? ORDER BY window_start, ord, kind, part"
READ_CHUNKS = _CHUNK_COLUMNS.format("value") + _OF_PACK
READ_SIZES = _CHUNK_COLUMNS.format("length(value)") + _OF_PACK
SCAN_CHUNKS = _CHUNK_COLUMNS.format("value") + (
    "pack_id >= ? AND pack_id <= ? ORDER BY pack_id, window_start, ord, kind, part"
)
FILE_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
PUT_LOADED = (
    "INSERT INTO loaded (topic_id, partition, position, emitted_through_ms) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET position = excluded.position, emitted_through_ms = excluded.emitted_through_ms"
    " WHERE (excluded.position, excluded.emitted_through_ms) > (position, emitted_through_ms)"
)
LOADED_TOPICS = "SELECT DISTINCT topic_id FROM loaded ORDER BY topic_id"
READ_LOADED = "SELECT topic_id, partition, position, emitted_through_ms FROM loaded WHERE topic_id IN (?, ?)"
_PUT_HOLE = (
    "INSERT INTO holes (partition, start_ms, end_ms, pack_id, record_offset, reason, accepted)"
    " VALUES (?, ?, ?, ?, ?, ?, "
)
PUT_HOLE = f"{_PUT_HOLE} 0) ON CONFLICT DO UPDATE SET reason = excluded.reason"
ACCEPT_HOLE = f"{_PUT_HOLE} 1) ON CONFLICT DO UPDATE SET reason = excluded.reason, accepted = 1"
DELETE_HOLE = (
    "DELETE FROM holes WHERE partition = ? AND start_ms = ? AND end_ms = ? AND pack_id = ? AND record_offset = ?"
)
READ_HOLES = (
    "SELECT partition, start_ms, end_ms, pack_id, record_offset, reason, accepted FROM holes"
    " WHERE start_ms < ? AND end_ms > ?"
)
PUT_SERIES = (
    "INSERT INTO series (epoch, name, series_id, pack_id, partition, labels) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET pack_id = excluded.pack_id, partition = excluded.partition, labels = excluded.labels"
)
PUT_METRIC_NAME = "INSERT OR IGNORE INTO metric_names (epoch, name) VALUES (?, ?)"
READ_EPOCHS = "SELECT DISTINCT epoch FROM metric_names ORDER BY epoch"
READ_METRIC_NAMES = "SELECT name FROM metric_names WHERE epoch = ? ORDER BY name"
# By key, because an open cursor would keep the WAL from shrinking during a long scan.
SCAN_SERIES = (
    "SELECT epoch, name, series_id, pack_id, partition, labels FROM series"
    " WHERE (epoch, name, series_id) > (?, ?, ?) ORDER BY epoch, name, series_id LIMIT ?"
)
READ_SERIES = "SELECT series_id, pack_id, partition, labels FROM series WHERE epoch = ? AND name = ?"
