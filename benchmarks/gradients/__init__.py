"""What the rows of Φ cost: per-image gradients of the paper's CIFAR-20 model, projected at random and kept on disk."""
