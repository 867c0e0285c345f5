"""Specs and answers of reads as arrays and values: stores, queriers and clients have them in common."""
