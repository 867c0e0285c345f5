"""The read side joins several stores and history behind one Reader service."""
