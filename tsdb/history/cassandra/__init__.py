"""History in Cassandra. Types of its driver stay in this package."""
