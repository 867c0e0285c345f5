"""downsample: from the past of each series six others, one sample every 5 minutes and every hour.

Written as chunks of an import, so that loader, readers and tools need to know nothing new.
"""
