"""Roles: each process of the product, put together from its settings."""
