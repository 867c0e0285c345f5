"""Building: tasks make chunks of windows and of late minutes from the log, for the pipeline, rebuild and verify."""
