"""Files to tokens: corpora, tokenizers, prepared data."""
