"""Reads of a head: gather samples of chosen series out of all slices, and find their first and last times."""
