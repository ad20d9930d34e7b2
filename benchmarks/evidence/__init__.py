"""Three GPU runs of one study, with models retrained from scratch to test its credits against."""
