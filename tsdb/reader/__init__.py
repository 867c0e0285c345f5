"""The parts of a read that store and querier share: request, limits, deadline, memory and frames."""
