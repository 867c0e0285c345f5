"""Roles: each module puts one process of the product together from its settings."""
