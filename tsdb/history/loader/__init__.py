"""The loader: the one way from `chunks` and `series` into history."""
