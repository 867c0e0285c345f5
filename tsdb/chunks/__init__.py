"""The chunk stage: from heads and offsets to keyed chunks and markers. Pure; both the chunker and Spark run it."""
