"""Pages: what each path of the API answers."""
