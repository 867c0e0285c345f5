"""Quota: limits requests and samples a second of each source and each bearer token, and reads the file of all
limits."""
