"""Series index: the series of one partition by id and by labels, and the matchers over them. No I/O."""
