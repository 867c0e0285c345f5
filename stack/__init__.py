"""Real servers for tests and benches: fetched by Maven, started on free loopback ports with scratch data, stopped."""
