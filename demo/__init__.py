"""`make demo`: the product shown live, on this machine's own metrics, through its public commands only."""
