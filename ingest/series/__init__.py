"""Active series: limits for each source and for the gateway, and the refusal of new series above them."""
