"""Functions over groups of series: aggregations and classic histograms."""
