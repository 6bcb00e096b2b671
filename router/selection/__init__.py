"""Which arm a request may use, and which it gets."""
