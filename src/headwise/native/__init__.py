"""The Transformer in C for the processors most people have: whole searches, and passes of training, in one call.

`products.c` multiplies, `attention.c` is equation 1, `transformer.c` the rest of section 3, `search.c` is
`decode/search.py` once more, and `network.py` packs a model's parameters for them. `training.c` and the second half of
`attention.c` are for `network/packing.py`, `network/dropout.py` and `training/loss.py`. All of them are written in the
eight-number operations of `simd.h` and compiled once for each set of instructions (`build.py`); the best that the
processor has is loaded (`library.py`), and every one yields the same bits. Everything here is optional: without the
library, or on an x86-64 processor without AVX2, torch does the same.

Imports neither torch nor a configuration: arrays in, tokens out.
"""
