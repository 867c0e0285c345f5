"""PromQL: the language, and its evaluation over samples."""
