"""From finished requests to what is known: slots of integer sums, and snapshots made of them."""
