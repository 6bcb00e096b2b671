"""A/B rollouts of speculation: what is planned, who is in, and what happens next."""
