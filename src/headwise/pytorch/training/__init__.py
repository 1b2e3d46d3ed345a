"""Training (section 5): loss, schedule, optimizer, checkpoints, and the training loop of all architectures."""
