"""Parses and expands the templates of alerts, in the language of Go with Prometheus's functions."""
