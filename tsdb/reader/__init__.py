"""What store and querier share of a read: its request, limits, deadline, memory and frames."""
