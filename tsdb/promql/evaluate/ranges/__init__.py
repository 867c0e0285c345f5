"""Functions over the samples of ranges."""
