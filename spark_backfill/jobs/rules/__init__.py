"""rules: evaluate rule files over history, and write what they would have recorded as an import."""
