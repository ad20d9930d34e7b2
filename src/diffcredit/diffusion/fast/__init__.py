"""Training and sampling near a GPU's limit: compiled once, recorded as CUDA graphs, many models side by side."""
