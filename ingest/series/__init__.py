"""Active series: how many a source and the gateway may have, and which new ones are refused."""
