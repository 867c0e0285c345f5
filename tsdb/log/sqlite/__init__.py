"""The log embedded in one process, over SQLite. No other package in tsdb.log uses sqlite3."""
