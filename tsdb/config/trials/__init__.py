"""Settings of trials on live data: shadow reads, experiments."""
