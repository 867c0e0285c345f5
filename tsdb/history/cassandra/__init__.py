"""History in Cassandra. The types of its driver stay in this package."""
