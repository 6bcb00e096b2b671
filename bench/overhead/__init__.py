"""What the proxy costs by itself, beside its peers."""
