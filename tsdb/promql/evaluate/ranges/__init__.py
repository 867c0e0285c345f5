"""Functions over ranges."""
