"""What operators look at: pages, and what feeds them. It measures and decides nothing."""
