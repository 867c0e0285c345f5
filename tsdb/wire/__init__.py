"""The messages of reads on the wire, and the values of tsdb.answer that they become: both directions, side by side."""
