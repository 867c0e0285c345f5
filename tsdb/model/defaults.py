"""Defaults of settings that a part also has where no settings reach it: in a task of Spark, a benchmark, a test.

The class of settings and the part take the value from here. docs/config.md has the meaning of each.
"""

from __future__ import annotations

# One write request, and all that wait for the log.
REQUEST_BYTES_MAX = 16 << 20
REQUEST_SERIES_MAX = 100_000
REQUEST_SAMPLES_MAX = 1_000_000
REQUEST_EXEMPLARS_MAX = 20_000  # Some 0.1 s of one thread.
INFLIGHT_BYTES_MAX = 256 << 20
PRODUCE_TIMEOUT_S = 10.0
WRITE_THREADS = 2

# Sources of writes.
SERIES_TABLE_BYTES = 256 << 20
SOURCE_SERIES_MAX = 100_000
GATEWAY_SERIES_MAX = 2_000_000
RATE_BURST_S = 10.0

# Limits of one read, and of all answers of a process.
SELECT_SERIES_MAX = 200_000
SELECT_SAMPLES_MAX = 50_000_000
SELECT_BYTES_MAX = 1 << 29
ANSWERS_BYTES_MAX = 1 << 30
READ_TIMEOUT_S = 120.0

# One query of PromQL, and all that run or wait.
QUERY_TIMEOUT_S = 120.0
QUERIES_WAITING_MAX = 64
QUERY_SLOW_S = 10.0
QUERY_VALUES_MAX = 50_000_000
UI_POINTS_MAX = 100_000
UI_SERIES_MAX = 500
UI_ROWS_MAX = 1_000

# Limits of the connections and calls of a server.
HTTP_CONNECTIONS_MAX = 2048
HTTP_HEADER_TIMEOUT_S = 10.0
HTTP_IDLE_TIMEOUT_S = 75.0
HTTP_REQUEST_TIMEOUT_S = 60.0
HTTP_BODY_TIMEOUT_S = 15.0
HTTP_URL_BYTES_MAX = 64 << 10
HTTP_HEADER_BYTES_MAX = 64 << 10
GRPC_RUNNING_MAX = 64
GRPC_WAITING_MAX = 128
GRPC_CONNECTIONS_MAX = 4096
GRPC_IDLE_TIMEOUT_S = 300.0
SEND_TIMEOUT_S = 30.0

# Limits of the memory of heads, and of their snapshots.
MEMORY_SOFT_BYTES = 6 << 30
MEMORY_HARD_BYTES = 8 << 30
WATCH_SAMPLES_MAX = 65_536
EXEMPLARS_SERIES_MAX = 256
EXEMPLARS_BYTES_MAX = 64 << 20  # Some 500,000 exemplars with a trace and a span.

# Limits of the loader, and of its connection to history.
LOAD_CONCURRENCY = 64
LOAD_BUFFER_BYTES_MAX = 128 << 20
LOAD_SERIES_REMEMBERED_MAX = 1_000_000
HISTORY_INFLIGHT_BYTES_MAX = 4 << 20
HISTORY_WRITE_TIMEOUT_S = 10.0
HISTORY_READ_TIMEOUT_S = 10.0
HISTORY_CACHE_BYTES_MAX = 4 << 30
HISTORY_DECODED_BYTES_MAX = 128 << 20
TABLES_LABELS_BYTES_MAX = 512 * 1024 * 1024  # Some 1.3 million series.
