"""The admin port: state as JSON, metrics, orders."""
