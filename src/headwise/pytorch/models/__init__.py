"""The PyTorch side of each kind of model, and the kinds that need PyTorch altogether."""
