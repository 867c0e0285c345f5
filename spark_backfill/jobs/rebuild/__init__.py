"""Rebuild: make the chunks of a range of windows from the log again, equal to those of the chunk stage."""
