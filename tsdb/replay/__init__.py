"""From the log into heads: the loop that stores, the chunk stage and Spark share."""
