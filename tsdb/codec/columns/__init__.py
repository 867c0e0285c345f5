"""Columns: encode the values and the times of one series as bytes. Layout: docs/formats/columns.md."""
