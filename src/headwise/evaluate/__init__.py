"""Metrics: corpus metrics of a model's output (`bleu.py`), and its probabilities for given text (`score.py`)."""
