"""Runs unit tests of rules: promtool's files, over samples in memory."""
