"""What is told about requests: metrics, decision log, and the sums that everything learns from."""
