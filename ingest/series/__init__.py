"""Active series: limits the series of each source and of the gateway, and refuses new series above the limits."""
