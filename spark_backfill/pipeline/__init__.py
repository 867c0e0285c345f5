"""Pipeline: the chunk stage as a Structured Streaming job, in place of the chunker."""
