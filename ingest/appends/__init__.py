"""Appends of requests to the log: joined while an append of their partition is in flight, answered by callbacks."""
