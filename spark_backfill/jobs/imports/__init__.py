"""Import: write files of any layout, and blocks of Prometheus, as chunks of history."""
