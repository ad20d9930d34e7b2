"""How long an evaluation takes: timed on a few steps, or read from what is recorded."""
