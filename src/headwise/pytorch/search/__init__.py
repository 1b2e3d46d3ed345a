"""Search with a network in PyTorch: beam search, sampling, constraints, and the encoders' and speech models' own."""
