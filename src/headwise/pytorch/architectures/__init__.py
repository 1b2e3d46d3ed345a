"""Architectures: the Transformer of recipes, recurrent encoder-decoders, ConvS2S, XLNet and the Evoformer.

Encoder-decoders have the methods `encode`, `decode`, `logits` and `start_cache` (`contract.EncoderDecoder`), so they
share trainer, search and file format.
"""
