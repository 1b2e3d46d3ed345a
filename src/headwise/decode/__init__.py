"""From a trained model to text; section 6.1 of the paper (arXiv:1706.03762).

`search` finds hypotheses through a step function, with `constraints`, `sampling` and `ranking` as its parts; `steps`
makes that function of a model. `engine` cuts token ids into batches for it, or for a model that searches by itself;
`translator` turns strings into translations and alone knows a tokenizer. `contract` has what they all speak of.

`contract`, `candidates`, `engine` and `translator` do without torch until a search step by step is asked for.
"""
