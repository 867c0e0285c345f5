"""Real servers for tests and benches: fetched by Maven, run on free loopback ports with scratch data."""
