"""Writing to the log from tasks: everything acknowledged before a task ends, and safe to do twice."""
