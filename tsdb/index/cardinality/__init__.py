"""Cardinality: counts of series by metric name, label, label pair and source."""
