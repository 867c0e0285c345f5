"""Import: files of any layout, and blocks of Prometheus, as chunks of the past."""
