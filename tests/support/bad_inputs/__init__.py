"""Mistakes of users, programs and strangers, one row each, with the words of the answer."""
