"""SQLite below the embedded log and the embedded history: files, transactions, errors and the writer's thread."""
