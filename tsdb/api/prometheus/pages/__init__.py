"""Pages: each module answers some paths of the API."""
