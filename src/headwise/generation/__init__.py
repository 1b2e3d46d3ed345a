"""Inference with pretrained models: continue, rewrite and fill in texts, embed them, label pictures, transcribe speech.

One search for all of them, that of `headwise.decode`. Networks come from `headwise.network` and checkpoints from
`headwise.families`; `models` puts both behind the verbs of a loaded model.
"""
