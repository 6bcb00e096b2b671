"""Configuration: one YAML file, strict models, errors that name the key."""
