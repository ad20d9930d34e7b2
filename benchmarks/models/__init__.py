"""What the paper's three models cost on a GPU, dense and pruned: training steps, sampling, memory."""
