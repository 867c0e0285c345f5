"""`tsdb kafka`: plans that move partitions and leaders, their application, and checks of the topics."""
