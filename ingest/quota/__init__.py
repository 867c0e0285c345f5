"""Quota: requests and samples a second of each source and each bearer token, and the file of all limits."""
