"""Synthetic games and conformance suites, for our tests and for those of plug-ins."""
