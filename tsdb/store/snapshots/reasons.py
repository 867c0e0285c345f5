"""Reasons why a snapshot is passed over: the store then replays the log, as without a snapshot."""

from __future__ import annotations

DAMAGED = "damaged"  # Bytes or checksums that do not fit, or a file that cannot be read.
HALF_WRITTEN = "half_written"  # The rest of a write that was cut off, or a file with other than its stated length.
VERSION = "version"  # The snapshot was written by another version of the product or of the format.
FOREIGN = "foreign"  # The snapshot is from another topic, partition, or log.
SETTINGS = "settings"  # The snapshot was written with other settings.
STALE = "stale"  # The log begins after it, or a replay needs fewer records than it.
NEWER_THAN_LOG = "newer_than_log"  # It has records that are not in the log.
CLOCK = "clock"  # It has records far ahead of our clock.

REASONS = (DAMAGED, HALF_WRITTEN, VERSION, FOREIGN, SETTINGS, STALE, NEWER_THAN_LOG, CLOCK)
