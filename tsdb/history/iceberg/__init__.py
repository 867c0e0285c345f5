"""Keeps history as an Iceberg table that other programs read. Only this room imports pyiceberg, an optional package."""
