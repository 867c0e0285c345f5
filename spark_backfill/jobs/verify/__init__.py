"""Verify: compare the chunks that the log gives with those in `chunks` and in history, and repair differences."""
