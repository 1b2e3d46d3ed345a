"""Families of pretrained models: their configuration and the names of their tensors.

A family is a small module: `config_from_hf` converts a `config.json` in the Hugging Face layout to a
`config.network.NetworkConfig`, and NAMES maps tensors of the file to parameters (`table`). `registry` lists all
families.
"""
