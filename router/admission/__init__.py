"""Who may enter now, who waits for how long, and who is sent away with what advice."""
