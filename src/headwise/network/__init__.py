"""The model, in the order of "Attention Is All You Need" (arXiv:1706.03762), section 3.

Torch and `headwise.config.settings` are all this package imports. It knows neither text nor files nor training.
"""
