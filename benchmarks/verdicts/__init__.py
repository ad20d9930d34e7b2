"""How often is a verdict right? Simulated studies whose contributors are equal, or differ by a planted amount."""
