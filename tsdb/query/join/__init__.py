"""Memory and history joined to one answer: completeness, the seam, and the merge per partition."""
