"""The words of the store as pure functions and values: labels, ids, placement, windows, time sets, errors."""
