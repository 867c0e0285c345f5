"""Head: keeps one partition of the log in memory, its samples and the index of its series. No I/O."""
