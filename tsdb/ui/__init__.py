"""Pages for people, in a browser: docs/decisions/ui.md."""
