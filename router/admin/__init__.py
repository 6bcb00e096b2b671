"""The admin port: state as JSON, metrics, the status page."""
