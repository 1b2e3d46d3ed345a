"""Texts, pictures, speech and series as batches of tensors."""
