"""The Transformer in C for the processors most people have: whole steps and whole searches without an operation of torch.

`products.c` multiplies, `transformer.c` is section 3 of the paper, `search.c` is `decode/search.py` once more, and
`network.py` packs a model's parameters for them. Everything here is optional: without the compiled library, or on a
processor without AVX2, `model/inference.py` does the same with torch.

Imports neither torch nor a configuration: arrays in, tokens out.
"""
