"""Writes over HTTP: what all protocols share."""
