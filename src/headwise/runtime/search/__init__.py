"""Decoding requests: texts to batches of token ids, to a search, to translations (section 6.1 of the paper).

`translator` translates strings. `engine` runs batches of token ids with the compiled library or with PyTorch; the
searches themselves are in `runtime.native` and `pytorch.search`.
"""
