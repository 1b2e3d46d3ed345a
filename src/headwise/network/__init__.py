"""The network, in the order of "Attention Is All You Need" (arXiv:1706.03762), section 3.

This package depends on torch and on the settings in `headwise.config`; it knows nothing of text, files or training.
"""
