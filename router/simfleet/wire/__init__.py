"""What engines say, byte for byte: streams, whole answers, errors and metrics of each kind."""
