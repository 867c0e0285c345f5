"""Records of the topics `metrics` and `series` as bytes. Layouts: docs/formats."""
