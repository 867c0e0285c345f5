"""Selection: makes vectors and ranges from samples of the storage."""
