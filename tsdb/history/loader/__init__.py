"""The loader is the only way from the topics `chunks` and `series` into history."""
