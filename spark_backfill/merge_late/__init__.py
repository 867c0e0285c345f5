"""merge-late: many fragments of a (pack, window) become one, and later the rows it covers are deleted.

Nothing here is ever in the way of an answer: a fold adds a chunk that changes no merge, and rows that go change none
either. So a run may stop anywhere, overlap with another, or see half of what one before it did.
"""
