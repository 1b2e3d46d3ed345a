"""What the families' models are for: writing on, rewriting, filling in, embedding, naming pictures, transcribing.

One search for all of them, that of `sightline.decode`. Networks come from `sightline.network` and checkpoints from
`sightline.families`; `models` puts both behind the verbs of a loaded model.
"""
