"""Tiny random checkpoints with a vocabulary of bytes, as folders; made without any other library's networks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from headwise.core.build import build
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.write import write_checkpoint

MARKS = ["<s>", "<pad>", "</s>", "<mask>", "<user>", "__de__", "__fr__", ">>fr<<", "<|0.00|>"]
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 60}
STACK = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "max_position_embeddings": 60, **STACK}
T5 = {"model_type": "t5", "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 2,
      "decoder_start_token_id": 1, "tie_word_embeddings": True}  # fmt: skip
M2M = {"model_type": "m2m_100", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
       "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
       "decoder_start_token_id": 2}  # fmt: skip
GEMMA2 = {**STACK, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8}
T5GEMMA = {"model_type": "t5gemma", "encoder": GEMMA2, "decoder": GEMMA2}
MARIAN = {**M2M, "model_type": "marian", "decoder_start_token_id": 1, "max_position_embeddings": 200,
          "encoder_layers": 2, "decoder_layers": 2}  # fmt: skip
VIT = {"model_type": "vit", "image_size": 8, "patch_size": 4, "id2label": {"0": "cat", "1": "dog", "2": "owl"}, **STACK,
       "architectures": ["ViTForImageClassification"]}  # fmt: skip
DEIT = {**VIT, "model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"]}
CAPTIONS = {"model_type": "vision-encoder-decoder", "encoder": VIT, "decoder_start_token_id": 0,
            "decoder": {**GPT2, "add_cross_attention": True, "bos_token_id": 0, "eos_token_id": 2}}  # fmt: skip
ALBERT = {**BERT, "model_type": "albert", "architectures": ["AlbertForMaskedLM"], "embedding_size": 8,
          "num_hidden_layers": 3}  # fmt: skip
MODERNBERT = {**BERT, "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "local_attention": 4,
              "num_hidden_layers": 2}  # fmt: skip
DEBERTA = {
    **BERT, "model_type": "deberta-v2", "architectures": ["DebertaV2ForMaskedLM"], "num_hidden_layers": 2,
    "relative_attention": True, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm",
    "pos_att_type": "p2c|c2p", "position_biased_input": False,
}  # fmt: skip
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "dim": 16, "n_layers": 1,
              "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 60}  # fmt: skip
GPT_NEOX = {"model_type": "gpt_neox", "max_position_embeddings": 60, **STACK}
LLAMA = {"model_type": "llama", "num_key_value_heads": 1, "max_position_embeddings": 600, **STACK}
# Behind the bytes, which end at 264: the end of text, the start, a language, a task, no timestamps, 51 timestamps.
WHISPER = {
    "model_type": "whisper", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_mel_bins": 8, "vocab_size": 321,
    "max_source_positions": 50, "max_target_positions": 24, "eos_token_id": 265, "decoder_start_token_id": 266,
}  # fmt: skip
HEARING = {  # generation_config.json
    "no_timestamps_token_id": 269, "lang_to_id": {"<|en|>": 267}, "task_to_id": {"transcribe": 268, "translate": 268},
    "suppress_tokens": [266, 267, 268], "begin_suppress_tokens": [265], "max_initial_timestamp_index": 10,
}  # fmt: skip
KINDS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "gpt_neox": GPT_NEOX,
    "bert": BERT,
    "albert": ALBERT,
    "modernbert": MODERNBERT,
    "deberta-v2": DEBERTA,
    "distilbert": DISTILBERT,
    "t5": T5,
    "t5gemma": T5GEMMA,
    "m2m": M2M,
    "marian": MARIAN,
    "vit": VIT,
    "deit": DEIT,
    "captions": CAPTIONS,
    "whisper": WHISPER,
}
IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def vocabulary(behind: bool, more: Sequence[str] = ()) -> Tokenizer:
    """Marks, bytes and `more` marks; `behind`: an end mark follows every text."""
    pieces = [*MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *more]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*MARKS, *more])
    if behind:
        tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def write_tiny(
    folder: Path,
    kind: str,
    changes: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
    marks: Sequence[str] = (),
    **tokenizer: Any,
) -> None:
    """Write a checkpoint of `KINDS`, with changes and more marks; `generation` is its generation_config.json."""
    values = {**KINDS[kind], **(changes or {})}
    pictures = "image_size" in values
    behind = "encoder_layers" in values or "num_layers" in values or kind == "t5gemma"
    text = vocabulary(behind, more=marks)
    if not pictures:
        values = {**IDS, "vocab_size": text.get_vocab_size(), **values}
    if "decoder" in values:
        values["decoder"] = {"vocab_size": text.get_vocab_size(), **values["decoder"]}
    config = FAMILIES[values["model_type"]].config_from_hf(values)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = build(config)
        for parameter in network.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
    write_checkpoint(folder, network, config, values)
    text.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "generation_config.json").write_text(json.dumps(generation or {}))
