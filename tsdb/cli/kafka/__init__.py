"""`tsdb kafka` plans moves of partitions and leaders, applies the plans, and checks the topics."""
