"""Codec: turns columns and records into bytes and back. Pure: no clock, file, socket, logger or config inside."""
