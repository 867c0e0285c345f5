"""Codec: columns and records to bytes and back. Pure: no clock, file, socket, logger or config inside."""
