"""The Transformer's families: each a table that says how its checkpoints map to our building blocks, in and out.

A family is one small file: `config_from_hf`, which reads a `config.json` in the Hugging Face layout into the axes of
`headwise.network.config`, and NAMES, which says where each tensor of a file belongs (`table`); `registry` lists
them all. No module of a network is here; all families are made of `headwise.network`.
"""
