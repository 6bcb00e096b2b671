"""Where requests come in: HTTP, parsing, error replies."""
