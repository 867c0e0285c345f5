"""HTTP APIs for readers of samples."""
