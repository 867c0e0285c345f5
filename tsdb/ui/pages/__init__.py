"""Pages: HTML that the server renders."""
