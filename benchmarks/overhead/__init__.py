"""What an evaluation costs beside its training steps and its images."""
