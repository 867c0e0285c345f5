"""Replay: from the log into heads, in the loop that stores, the chunk stage and Spark share."""
