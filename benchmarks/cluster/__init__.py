"""What a Ray cluster costs besides the work."""
