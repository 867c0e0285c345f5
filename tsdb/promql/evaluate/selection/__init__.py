"""Selection: from samples of the storage to vectors and ranges."""
