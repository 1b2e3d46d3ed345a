"""Whisper (arXiv:2212.04356): a Transformer for speech recognition.

Changes to the Transformer: two convolutions over a log-mel spectrogram instead of source embeddings, norms
before the sub-layers and one after the last, GELU, no bias on keys, position tables in the file.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bart
from headwise.families.family import Family, Traits
from headwise.families.keys import Keys

HEADS = {"WhisperForConditionalGeneration": "language", "WhisperModel": "language"}
NAMES = {
    **bart.STACKS,
    "model.encoder.conv1": "src_embeddings.conv1",
    "model.encoder.conv2": "src_embeddings.conv2",
    "model.encoder.embed_positions.weight": "src_embeddings.positions",
    "model.decoder.embed_tokens": "tgt_embeddings.tokens",
    "model.decoder.embed_positions": "tgt_embeddings.positions.table",
    "proj_out": "head.output",
}
# Keys for augmentation, alignment, generation and other heads.
OTHERS = """
max_source_positions max_target_positions apply_spec_augment mask_time_prob mask_time_length mask_time_min_masks
mask_feature_prob mask_feature_length mask_feature_min_masks median_filter_width classifier_proj_size num_hidden_layers
alignment_heads lang_ids lang_to_id no_timestamps_token_id return_timestamps language task is_multilingual
"""


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("scale_embedding", False)
    k.only("is_decoder", False)
    k.only("use_weighted_layer_sum", False)
    encoder, decoder = (replace(bart.stack_from_hf(k, side), attention_bias="qvo") for side in ("encoder", "decoder"))
    config = NetworkConfig(
        "whisper",
        vocab_size=k.size("vocab_size"),
        encoder=replace(encoder, max_len=k.size("max_source_positions", default=1500)),
        decoder=replace(decoder, positions="learned", max_len=k.size("max_target_positions", default=448)),
        front="audio",
        n_mels=k.size("num_mel_bins", default=80),
        head=k.head(HEADS),
        tie_head=k.flag("tie_word_embeddings", default=True),
    )
    k.done(ignored=OTHERS)
    return config


FAMILY = Family(config_from_hf, NAMES, prefix="model.", traits=Traits("WhisperTokenizer"))
