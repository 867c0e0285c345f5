"""History in one SQLite file: of a process on its own, and of tests."""
