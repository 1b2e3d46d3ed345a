"""Tokenized data that are cached, planned into batches, mixed and masked."""
