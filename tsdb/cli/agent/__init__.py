"""The agent: writes measurements of a host and of its exporters once an interval."""
