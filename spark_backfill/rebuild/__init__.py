"""Rebuild: chunks of a range of windows out of the log again, as the chunk stage made them."""
