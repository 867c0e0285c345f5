"""Head: what one partition of the log holds in memory, its samples and the index of its series. No I/O."""
