"""downsample: derive six series from each series of history, with one sample every 5 minutes and one every hour.

The derived series are written as chunks of an import, so that loader, readers and tools need no change.
"""
