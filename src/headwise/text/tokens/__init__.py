"""Tokenizers that are trained on your files."""
