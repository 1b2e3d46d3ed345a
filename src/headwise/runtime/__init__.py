"""Running a model without PyTorch: the C library, search, model folders, tokenizers."""
