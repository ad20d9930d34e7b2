"""A simulated cluster of 256 workers and 100,000 evaluations."""
