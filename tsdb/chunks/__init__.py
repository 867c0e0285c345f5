"""The chunk stage turns heads and offsets into keyed chunks and markers. Pure; both the chunker and Spark run it."""
