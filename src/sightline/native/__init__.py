"""The Transformer in C for the processors most people have: whole searches, and passes of training, in one call.

`products.c` multiplies, `attention.c` is equation 1, `transformer.c` the rest of section 3, `search.c` is
`decode/search.py` once more, and `network.py` packs a model's parameters for them. `training.c` and the second half of
`attention.c` are for `network/packing.py`, `network/dropout.py` and `training/loss.py`. Everything here is optional:
without the compiled library, or on a processor without AVX2, torch does the same.

Imports neither torch nor a configuration: arrays in, tokens out.
"""
