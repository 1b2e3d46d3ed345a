"""What nobody needs to train a model or to use one: tested and documented as the rest, which imports nothing of it.

`study/` puts claims made for attention to the test (`sightline study`); `evoformer.py` is attention over pairs of
positions, as AlphaFold 2 has it.
"""
