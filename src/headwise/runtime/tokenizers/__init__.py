"""Tokenizers and vocabularies of model folders, trained here or published."""
