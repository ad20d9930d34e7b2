"""Estimates of how long an evaluation takes, from a few timed steps or from recorded evaluations."""
