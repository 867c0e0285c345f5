"""Evaluation of PromQL: a whole expression at once, over blocks of (series, steps)."""
