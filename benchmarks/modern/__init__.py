"""Models of today from scratch: a class-conditional flow DiT, and a text-to-image transformer with adapters."""
