"""Runs real servers for tests and benches: Maven fetches them, and they use free loopback ports and scratch data."""
