"""Folders with models, read and written: those that `sightline train` makes, and those in the Hugging Face layout.

`folder.read_folder` reads any: `layout` tells which is which, `hub` finds one by its name; `trained` are our own,
`imported`, `published`, `write` and `tuned` the others', `xlnet` that one relative's; `beside` is what may be in any.
Not here: networks (`network`), and what a family's names mean (`families`).
"""
