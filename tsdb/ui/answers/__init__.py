"""Answers that the scripts of the pages ask for."""
