"""What each engine can be asked for, and how its answers are read."""
