"""Application: runs the chunk stage as a stream, and scheduled jobs beside it, in one long-lived Spark session."""
