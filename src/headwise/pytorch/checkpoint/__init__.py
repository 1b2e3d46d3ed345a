"""Model folders that become networks in PyTorch, and conversions of other formats."""
