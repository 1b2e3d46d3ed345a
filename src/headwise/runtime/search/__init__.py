"""Decoding: greedy search, beam search and sampling; section 6.1 of the paper (arXiv:1706.03762).

`search` is beam search over a step function, with `constraints`, `sampling` and `ranking`; `stepwise` makes the step
function of a torch model. `engine` runs batches of token ids with torch or the compiled library. `translator`
translates strings. `candidates`, `engine`, `request` and `translator` do not import torch.
"""
