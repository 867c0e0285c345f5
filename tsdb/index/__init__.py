"""Series index: finds the series of one partition by id and by labels, with matchers. No I/O."""
