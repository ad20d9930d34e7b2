"""How good credits are."""
