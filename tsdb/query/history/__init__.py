"""History as a querier reads it: series index, samples, holes and derived series."""
