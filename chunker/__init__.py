"""The chunker: runs the chunk stage over a consumer group of the log."""
