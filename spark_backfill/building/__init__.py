"""Building: chunks of windows and late minutes out of the log, within tasks; for the pipeline, rebuild and verify."""
