"""Functions over groups of series: compute aggregations and classic histograms."""
