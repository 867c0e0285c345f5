"""Evaluation of PromQL: evaluates a whole expression at once, over blocks of (series, steps)."""
