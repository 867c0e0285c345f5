"""merge-late: fold many fragments of a (pack, window) into one, and later delete the rows that the fold covers.

No step changes an answer: a fold adds a chunk that changes no merge, and neither does deleting the covered rows. So a
run may stop at any point, overlap with another run, or see a part of the work of an earlier run.
"""
