"""Kernel build: makes the library of compiled kernels (docs/decisions/kernels.md). Only this package imports numba."""
