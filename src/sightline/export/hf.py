"""A folder for transformers: `MarianMTModel`, or `PegasusForConditionalGeneration` where layers normalise first.

Marian's network is the paper's, and Pegasus' the same with the norms in front, but for one thing: their positions are
all sines, then all cosines, where the paper's (and ours) alternate. Every other part treats the components of the
residual stream alike, so they are written in another order here, and the function is the same.

Not here: other families, in or out (`families`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from sightline.config import DecodeConfig, ModelConfig
from sightline.errors import UserError
from sightline.export.exported import LENGTH, POSITIONS, Exported, has_uneven_heads, position_table, refuse

INSTALL = "pip install 'sightline[hf]'"
LAYOUTS = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}

NAMES = {  # within a layer, ours -> theirs
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn_sublayer.norm": "self_attn_layer_norm",
    "cross_attn.q_proj": "encoder_attn.q_proj",
    "cross_attn.k_proj": "encoder_attn.k_proj",
    "cross_attn.v_proj": "encoder_attn.v_proj",
    "cross_attn.o_proj": "encoder_attn.out_proj",
    "cross_attn_sublayer.norm": "encoder_attn_layer_norm",
    "ffn.up_proj": "fc1",
    "ffn.down_proj": "fc2",
    "ffn_sublayer.norm": "final_layer_norm",
}
READS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "up_proj.weight", "tokens.weight", "output.weight")
WRITES = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "norm.weight", "norm.bias")

USE = """\
A translation model in the layout of transformers' {architecture}, made by Sightline.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
batch = tokenizer(["{example}"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```
"""


def check(exported: Exported) -> None:
    """`UserError` where the layout cannot hold the model, or transformers is not there to try it."""
    c = exported.config
    refuse(
        exported,
        f"the layout of {LAYOUTS[c.norm_position][1]}",
        (c.positions != "sinusoidal", f"{c.positions} positions"),
        (has_uneven_heads(c), "heads of their own width or number"),
        (c.norm_position == "pre" and c.tied_embeddings != "all", f"tied_embeddings = {c.tied_embeddings!r}"),
    )
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise UserError(f"--to hf needs transformers to check what it wrote: {INSTALL}") from None


def write(exported: Exported, folder: Path, decode: DecodeConfig, example: str) -> None:
    """Everything `from_pretrained` reads, and a page on how to use it."""
    check(exported)
    save_file(hf_tensors(exported), folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", hf_config(exported))
    _write_json(folder / "generation_config.json", _generation_config(exported, decode))
    _write_tokenizer(exported, folder)
    text = USE.format(architecture=LAYOUTS[exported.config.norm_position][1], example=example)
    (folder / "README.md").write_text(text, encoding="utf-8")


def hf_tensors(exported: Exported) -> dict[str, Tensor]:
    """Parameters under their names, with the residual stream in their order; a shared one once."""
    c = exported.config
    found: dict[str, Tensor] = {}
    for name, value in exported.parameters().items():
        theirs = hf_name(name, c)
        if theirs:
            found[theirs] = _reorder(name, value).contiguous()
    if LAYOUTS[c.norm_position][0] == "pegasus":  # its files have them, Marian's do not
        network = exported.network
        for side, embeddings in (("encoder", network.src_embeddings), ("decoder", network.tgt_embeddings)):
            found[f"model.{side}.embed_positions.weight"] = _halves(position_table(embeddings), 1)
    return found


def hf_name(name: str, c: ModelConfig) -> str:
    """Their name of a parameter; empty where they take another one for it.

    >>> hf_name("decoder.layers.3.cross_attn.o_proj.bias", ModelConfig())
    'model.decoder.layers.3.encoder_attn.out_proj.bias'
    """
    side, *rest = name.split(".")
    if side == "head":
        return "lm_head.weight" if c.tied_embeddings == "none" else ""
    if side in ("src_embeddings", "tgt_embeddings"):
        if c.tied_embeddings != "all":
            return f"model.{'encoder' if side == 'src_embeddings' else 'decoder'}.embed_tokens.weight"
        return "model.shared.weight" if side == "src_embeddings" else ""
    if rest[0] == "norm":
        return f"model.{side}.layer_norm.{rest[1]}"
    _, i, *inner, kind = rest
    return f"model.{side}.layers.{i}.{NAMES['.'.join(inner)]}.{kind}"


def _reorder(name: str, value: Tensor) -> Tensor:
    """A parameter with the components of the residual stream in their order: even ones, then odd ones."""
    if name.endswith(READS):
        return _halves(value, 1)
    return _halves(value, 0) if name.endswith(WRITES) else value


def _halves(value: Tensor, axis: int) -> Tensor:
    width = torch.arange(value.size(axis))
    return value.index_select(axis, torch.cat([width[0::2], width[1::2]]))


def hf_config(exported: Exported) -> dict[str, Any]:
    """Their config.json."""
    c, t = exported.config, exported.tokenizer
    model_type, architecture = LAYOUTS[c.norm_position]
    one_table = {"share_encoder_decoder_embeddings": c.tied_embeddings == "all"} if model_type == "marian" else {}
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "vocab_size": c.vocab_size,
        "d_model": c.d_model,
        "encoder_layers": c.n_encoder_layers,
        "decoder_layers": c.n_decoder_layers,
        "encoder_attention_heads": c.n_heads,
        "decoder_attention_heads": c.n_heads,
        "encoder_ffn_dim": c.d_ff,
        "decoder_ffn_dim": c.d_ff,
        "activation_function": "relu",
        "dropout": c.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": True,
        "tie_word_embeddings": c.tied_embeddings != "none",
        **one_table,
        "is_encoder_decoder": True,
        "pad_token_id": t.pad_id,
        "bos_token_id": t.bos_id,
        "eos_token_id": t.eos_id,
        "decoder_start_token_id": t.bos_id,
        "forced_eos_token_id": None,
    }


def _generation_config(exported: Exported, decode: DecodeConfig) -> dict[str, Any]:
    """How to search by default. Their length penalty has another formula (length ** alpha), so beams may differ."""
    t = exported.tokenizer
    return {
        "pad_token_id": t.pad_id,
        "bos_token_id": t.bos_id,
        "eos_token_id": t.eos_id,
        "decoder_start_token_id": t.bos_id,
        "suppress_tokens": sorted(exported.suppressed),
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty if decode.beam_size > 1 else 1.0,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "max_new_tokens": min(POSITIONS, int(decode.max_length_factor * LENGTH) + decode.max_length_extra),
    }


def _write_tokenizer(exported: Exported, folder: Path) -> None:
    """Our tokenizer.json, which now also adds the end mark, as their models expect."""
    ours = exported.tokenizer
    backend = tokenizers.Tokenizer.from_str(ours.backend.to_str())
    pad, bos, eos, unk = (backend.id_to_token(i) for i in (ours.pad_id, ours.bos_id, ours.eos_id, ours.unk_id))
    backend.post_processor = tokenizers.processors.TemplateProcessing(f"$A {eos}", None, [(eos, ours.eos_id)])
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": unk,
        "split_special_tokens": True,  # text that looks like a special token stays text
        "clean_up_tokenization_spaces": False,
        "padding_side": "right",
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def greedy(exported: Exported, folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Greedy translations by transformers of what `write` wrote, in ids without end marks, at most LENGTH steps."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with _no_progress_bar():
        model, loading = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    left = {kind: sorted(names) for kind, names in loading.items() if names}
    assert not left, f"transformers finds {left}"
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    wanted = [[*tokens, exported.tokenizer.eos_id] for tokens in exported.tokenizer.encode_batch(texts)]
    found = [row[mask.bool()].tolist() for row, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]
    assert found == wanted, "transformers segments otherwise"
    with torch.inference_mode():
        options = {"num_beams": 1, "do_sample": False, "length_penalty": 1.0, "max_new_tokens": LENGTH}
        rows = model.eval().generate(**batch, **options)
    return [until(row, tokenizer.eos_token_id) for row in rows[:, 1:].tolist()]


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Loading takes no time worth watching."""
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def until(tokens: list[int], eos_id: int) -> list[int]:
    """What stands before the end mark.

    >>> until([5, 6, 2, 0, 0], 2)
    [5, 6]
    """
    return tokens[: tokens.index(eos_id)] if eos_id in tokens else tokens
