"""What came before the Transformer, behind the contract it keeps: `encode`, `decode`, `logits`, `start_cache`.

Recurrent encoder-decoders (`recurrent`, `recurrent_decoders`, `attention`) and ConvS2S (`conv`), from a configuration
in `build`. One trainer, one search and one model directory serve them all.
"""
