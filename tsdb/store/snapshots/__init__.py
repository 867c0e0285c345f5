"""Snapshots of heads: a cache in files, from which a store starts without a replay of its whole memory. Never state."""
