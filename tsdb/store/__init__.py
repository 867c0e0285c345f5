"""The store: workers that replay the log into heads, readiness, and the Reader service over them."""
