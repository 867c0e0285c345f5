"""Pipeline: the chunk stage as a Structured Streaming job. It replaces the Python chunker."""
