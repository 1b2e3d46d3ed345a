"""From a trained model to text; section 6.1 of the paper (arXiv:1706.03762).

`search` finds hypotheses through a step function, with `constraints`, `sampling` and `ranking` as its parts;
`engine` batches token ids around it; `translator` turns strings into translations. Only `translator` knows a
tokenizer.
"""
