"""Reads of a head: samples of chosen series gathered out of all slices, and the ring of the newest records."""
