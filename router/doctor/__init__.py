"""What is right and wrong with every server behind a configuration, found out by asking them."""
