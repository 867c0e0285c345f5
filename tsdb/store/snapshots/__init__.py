"""Snapshots of heads: files from which a store starts without a replay of its whole memory. They are a cache and never
state."""
