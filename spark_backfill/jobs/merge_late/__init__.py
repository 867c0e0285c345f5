"""merge-late: fold many fragments of a (pack, window) into one, and later delete the rows that the fold covers.

No step changes an answer. A fold adds a chunk that changes no merge, and the deletion of the covered rows changes none
either. So a run may stop at any point, overlap with another run, or see a part of the work of an earlier run.
"""
