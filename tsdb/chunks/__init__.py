"""The chunk stage: from heads and offsets to keyed chunks and markers. Pure; run by the chunker and by Spark alike."""
