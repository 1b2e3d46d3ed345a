"""Export to transformers: `MarianMTModel`, or `PegasusForConditionalGeneration` for pre-norm models.

Marian's network is the paper's, and Pegasus' the pre-norm variant, with one difference: their position encodings are
all sines, then all cosines, where the paper's (and ours) alternate. All other parts treat the components of the
residual stream alike, so the export permutes these; the function is the same. See `families` for names of files and
tensors.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from headwise.config.from_recipe import transformer_config
from headwise.config.network import NetworkConfig, StackConfig
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.pytorch.checkpoint.write import config_to_hf, file_tensors, write_files
from headwise.pytorch.export.exported import (
    MAX_NEW_TOKENS,
    N_POSITIONS,
    ExportedModel,
    check_supported,
    has_uneven_heads,
    position_table,
)
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.trained import write_json

INSTALL = 'pip install "headwise[hf]"'
FAMILY_OF = {"post": "marian", "pre": "pegasus"}  # by norm_position
# Why no other layout of an encoder-decoder is used: of those for text only T5Gemma has rotary positions, and its layers
# have norms after each sub-layer. An RMS norm keeps only the direction of its input: no weights make it the identity.
TO_TRAIN = "train with model.positions=sinusoidal for this format"
INSTEAD = {
    "rotary": f"only T5Gemma has them, whose layers have more norms; {TO_TRAIN}, or export to ctranslate2 or onnx",
    "learned": f"{TO_TRAIN}, or export to ctranslate2 or onnx",
    "relative": f"{TO_TRAIN}, or export to onnx",
    "none": f"{TO_TRAIN}, or export to onnx",
}
RESIDUAL_INPUTS = (
    "q_proj.weight",
    "k_proj.weight",
    "v_proj.weight",
    "up_proj.weight",
    "tokens.weight",
    "output.weight",
)
RESIDUAL_OUTPUTS = ("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias", "norm.weight", "norm.bias")

USE = """\
A translation model in the layout of transformers' {architecture}, made by Headwise.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER)
batch = tokenizer(["{example}"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```
"""


def check_hf(exported: ExportedModel) -> None:
    """`UserError` if the layout cannot represent the model, or transformers is missing."""
    c = exported.config
    target = f"the layout of {_architecture(exported)}"
    check_supported(
        exported,
        target,
        (c.positions != "sinusoidal", f"{c.positions} positions ({INSTEAD.get(c.positions)})"),
        (has_uneven_heads(c), "head counts or sizes that differ between layers"),
        (c.norm_position == "pre" and c.tied_embeddings != "all", f"tied_embeddings = {c.tied_embeddings!r}"),
    )
    check_supported(exported, target, *((True, axis) for axis in config_to_hf(family_config(exported))[1]))
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise UserError(f"--to hf needs transformers to check its output: {INSTALL}") from None


def write_hf(exported: ExportedModel, folder: Path, example: str, int8: bool = False) -> None:
    """Write the files that `from_pretrained` reads, and a README with an example; transformers has no int8 files."""
    check_hf(exported)
    write_files(folder, hf_tensors(exported), hf_config(exported))
    write_json(folder / "generation_config.json", _generation_config(exported))
    _write_tokenizer(exported, folder)
    text = USE.format(architecture=_architecture(exported), example=example)
    (folder / "README.md").write_text(text, encoding="utf-8")
    seal(folder)


def family_config(exported: ExportedModel) -> NetworkConfig:
    """The settings of the family whose network this is with a permuted residual stream."""
    ours = transformer_config(exported.config)

    def reordered(stack: StackConfig) -> StackConfig:
        d_v = 0 if stack.d_v == stack.d_head else stack.d_v  # 0 means the same
        return replace(stack, d_v=d_v, positions="sinusoidal", max_len=N_POSITIONS)

    assert ours.encoder and ours.decoder
    stacks = {"encoder": reordered(ours.encoder), "decoder": reordered(ours.decoder)}
    return replace(ours, family=FAMILY_OF.get(ours.encoder.norm_position, "pegasus"), **stacks)


def _architecture(exported: ExportedModel) -> str:
    return config_to_hf(family_config(exported))[0]["architectures"][0]


def hf_tensors(exported: ExportedModel) -> dict[str, Tensor]:
    """Parameters by name, with a permuted residual stream; shared ones once."""
    config, network = family_config(exported), exported.network
    own = {name: _reorder(name, value) for name, value in parameters_of(network).items()}
    found = file_tensors(own, config)
    if config.family == "pegasus":  # stored in files of Pegasus, not of Marian
        for side, embeddings in (("encoder", network.src_embeddings), ("decoder", network.tgt_embeddings)):
            found[f"model.{side}.embed_positions.weight"] = _halves(position_table(embeddings), 1)
    return found


def _reorder(name: str, value: Tensor) -> Tensor:
    """A parameter with the residual stream permuted: even components, then odd ones."""
    if name.endswith(RESIDUAL_INPUTS):
        return _halves(value, 1)
    return _halves(value, 0) if name.endswith(RESIDUAL_OUTPUTS) else value


def _halves(value: Tensor, axis: int) -> Tensor:
    width = torch.arange(value.size(axis))
    return value.index_select(axis, torch.cat([width[0::2], width[1::2]]))


def hf_config(exported: ExportedModel) -> dict[str, Any]:
    """The config.json."""
    t = exported.tokenizer
    return {
        **config_to_hf(family_config(exported))[0],
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": t.pad_id,
        "bos_token_id": t.bos_id,
        "eos_token_id": t.eos_id,
        "decoder_start_token_id": t.bos_id,
        "forced_eos_token_id": None,
    }


def _generation_config(exported: ExportedModel) -> dict[str, Any]:
    """The search settings. Their length penalty has another formula (length ** alpha), so beams may differ."""
    t, decode = exported.tokenizer, exported.decode
    return {
        "pad_token_id": t.pad_id,
        "bos_token_id": t.bos_id,
        "eos_token_id": t.eos_id,
        "decoder_start_token_id": t.bos_id,
        "suppress_tokens": sorted(exported.suppressed),
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty if decode.beam_size > 1 else 1.0,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "repetition_penalty": decode.repetition_penalty,
        "max_new_tokens": min(N_POSITIONS, int(decode.max_length_factor * MAX_NEW_TOKENS) + decode.max_length_extra),
    }


def _write_tokenizer(exported: ExportedModel, folder: Path) -> None:
    """Our tokenizer.json, which now also adds EOS, as their models expect."""
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
        "model_max_length": N_POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_json(folder / "tokenizer_config.json", settings)


def greedy_by_transformers(exported: ExportedModel, folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Greedy translations by transformers of the written model: ids without EOS, up to MAX_NEW_TOKENS."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with _no_progress_bar():
        model, loading = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    left = {kind: sorted(names) for kind, names in loading.items() if names}
    assert not left, f"transformers reports {left}"
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    wanted = [[*tokens, exported.tokenizer.eos_id] for tokens in exported.tokenizer.encode_batch(texts)]
    found = [row[mask.bool()].tolist() for row, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]
    assert found == wanted, "transformers tokenizes differently"
    with torch.inference_mode():
        plain = {"num_beams": 1, "do_sample": False, "length_penalty": 1.0, "no_repeat_ngram_size": 0}
        options = {**plain, "repetition_penalty": 1.0, "max_new_tokens": MAX_NEW_TOKENS}
        rows = model.eval().generate(**batch, **options)
    return [before_eos(row, tokenizer.eos_token_id) for row in rows[:, 1:].tolist()]


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


def before_eos(tokens: list[int], eos_id: int) -> list[int]:
    """The tokens before EOS.

    >>> before_eos([5, 6, 2, 0, 0], 2)
    [5, 6]
    """
    return tokens[: tokens.index(eos_id)] if eos_id in tokens else tokens
