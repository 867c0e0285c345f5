"""The agent: what a host and its exporters measure, written once an interval."""
