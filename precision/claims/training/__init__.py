"""A small attention model that learns to look things up, many seeds and divisors at a time."""
