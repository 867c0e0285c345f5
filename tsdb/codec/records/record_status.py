"""Status of each decoded record of a batch. It is no exception, so that a bad record does not stop the others."""

STATUS_OK = 0
STATUS_CORRUPT = 1  # The bytes break their format: becomes a hole, and replay goes on.
STATUS_UNKNOWN_VERSION = 2  # The record is undamaged, but of a newer version: the partition stops.
