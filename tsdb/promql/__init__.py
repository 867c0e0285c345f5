"""PromQL: parses the language, and evaluates it over samples."""
