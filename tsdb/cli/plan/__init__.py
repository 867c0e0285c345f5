"""`tsdb plan` computes the size of an installation for a load, from measured figures."""
