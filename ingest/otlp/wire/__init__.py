"""Wire: scans the bytes of a request into tables of spans."""
