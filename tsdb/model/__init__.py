"""Model: defines labels, ids, placement, windows, time sets and errors, as pure functions and values."""
