"""Encoders: embeddings, masked words, classes, tags and answers."""
