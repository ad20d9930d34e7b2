"""How many planted copies the search for near-copies finds, and which pairs of works it takes for copies."""
