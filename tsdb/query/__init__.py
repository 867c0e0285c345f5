"""The read side over everything: several stores and history behind one Reader service."""
