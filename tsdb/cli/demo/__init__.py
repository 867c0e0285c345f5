"""`tsdb demo` shows the product live, on this machine's own metrics, through its public commands only."""
