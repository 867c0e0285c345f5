"""Migrate: copy all of a history into another one while both the pipeline and readers use the first."""
