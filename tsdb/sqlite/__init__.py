"""SQLite below the embedded log and the embedded history: opens files, runs transactions, maps errors and has the
writer's thread."""
