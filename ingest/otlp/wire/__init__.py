"""Wire: the bytes of a request as tables of spans."""
