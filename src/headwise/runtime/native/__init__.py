"""The compiled library: the Transformer and its search in C, and parts of a training step on a CPU.

`products.c` has matrix products, `attention.c` equation 1, `layers.c`, `encoder.c`, `decoder.c` and `transformer.c` the
rest of section 3, `search.c` the counterpart of `core/search.py`, `reading.c` what is recorded of given pairs;
`network.py` packs a model's parameters. `training.c` and the second half of `attention.c` are for
`pytorch/training/packed.py`, `core/dropout.py` and `core/loss.py`. The code uses the SIMD operations of `simd.h` and is
compiled for several instruction sets (`build.py`). `library.py` loads the best one for the processor; all give the same
bits. The library is optional: torch does the same without it.

This package imports neither torch nor the configuration.
"""
