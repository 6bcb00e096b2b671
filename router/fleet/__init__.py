"""Pools and their servers: what they are, whether they answer, which one takes a request."""
