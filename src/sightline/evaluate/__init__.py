"""How good is a model: corpus metrics on its output (`bleu.py`) and its own probabilities for given text
(`score.py`)."""
