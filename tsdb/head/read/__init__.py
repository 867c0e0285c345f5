"""Reads of a head: samples of chosen series gathered out of all slices, and their first and last times."""
