"""How cheaply a study's models can be sampled before its values and its credits change."""
