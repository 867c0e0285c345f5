"""Backup and restore: history, and the compacted topics of its log, as files in a folder or in object storage."""
