"""Native histograms: samples with buckets, beside the floats of a block."""
