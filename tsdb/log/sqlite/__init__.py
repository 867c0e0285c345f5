"""The log embedded in one process, over SQLite. The only package here that knows sqlite3."""
