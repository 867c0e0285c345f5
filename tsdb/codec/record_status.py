"""What decoding says of each record of a batch: a status, not an exception, so that a bad record costs only itself."""

STATUS_OK = 0
STATUS_CORRUPT = 1  # Bytes that break their format: a hole, then go on.
STATUS_UNKNOWN_VERSION = 2  # Whole, but of a newer version: stop the partition.
