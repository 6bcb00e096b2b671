"""Where counters live between processes and restarts."""
