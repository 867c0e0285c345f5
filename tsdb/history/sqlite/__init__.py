"""Keeps history in one SQLite file, for a standalone process and for tests."""
