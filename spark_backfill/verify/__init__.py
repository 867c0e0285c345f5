"""Verify: what the log says against what `chunks` and history hold, and how to mend what differs."""
