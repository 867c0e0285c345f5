"""Writing to the log from tasks: every record is acknowledged before a task ends, and a repeated task is safe."""
