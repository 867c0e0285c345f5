"""Slices of a head: store open and sealed stretches of sample time, the late list, and the ring of the newest
records."""
