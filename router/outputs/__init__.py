"""What answers say, and whether that is what was demanded of them. Pure; no text leaves it."""
