"""Whether the intervals and ceilings of validation keep what they promise."""
