"""What the families' models are for: writing on, rewriting, filling in, embedding, naming pictures, transcribing.

One search for all of them, that of `headwise.decode`. Networks come from `headwise.network` and checkpoints from
`headwise.families`; `models` puts both behind the verbs of a loaded model.
"""
