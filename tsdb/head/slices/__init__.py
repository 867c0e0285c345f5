"""Slices of a head: open and sealed stretches of sample time, and the late list beside them."""
