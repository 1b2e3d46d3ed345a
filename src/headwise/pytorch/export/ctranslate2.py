"""Export to CTranslate2, with its own converter library.

It represents our Transformers, trained here or pretrained: post- or pre-norm, any position table, rotary positions or
T5's relative positions, gated or plain feed-forward layers, grouped heads; not layers with different head counts or
sizes. A table of
`pytorch.checkpoint.ctranslate2_folder` maps its tensor names to ours. Its length penalty has another formula than ours.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.config.network import NetworkConfig, StackConfig
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.families.table import entries
from headwise.pytorch.checkpoint.ctranslate2_folder import ACTIVATION_NAMES, EPS, NORM, ctranslate2_names, stacks_of
from headwise.pytorch.checkpoint.tensors import file_tensor
from headwise.pytorch.export.exported import (
    MAX_NEW_TOKENS,
    Exportable,
    ExportedModel,
    check_supported,
    has_uneven_heads,
    position_table,
)

INSTALL = 'pip install "headwise[ctranslate2]"'
POSITION_PARAMETERS = {"positions", "reach"}  # parameters set by `_set_positions`
SUPPRESSED_BIAS = -1e4  # bias on the logits of suppressed tokens; fits float16

USE = """\
A translation model for CTranslate2, made by Headwise.

```python
import ctranslate2, tokenizers

tokenizer = tokenizers.Tokenizer.from_file(FOLDER + "/tokenizer.json")
translator = ctranslate2.Translator(FOLDER)
pieces = tokenizer.encode("{example}").tokens + ["{eos}"]
found = translator.translate_batch([pieces], beam_size=4)[0].hypotheses[0]
print(tokenizer.decode([tokenizer.token_to_id(piece) for piece in found]))
```
"""

USE_PUBLISHED = """\
A pretrained model for CTranslate2, converted by Headwise; `transformers` reads its tokenizer.

```python
import ctranslate2, transformers

tokenizer = transformers.AutoTokenizer.from_pretrained(ORIGINAL_FOLDER)
translator = ctranslate2.Translator(FOLDER)
pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode("{example}"))
found = translator.translate_batch([pieces], beam_size=4{begins})[0].hypotheses[0]
print(tokenizer.decode(tokenizer.convert_tokens_to_ids(found), skip_special_tokens=True))
```
"""

SUPPORTED = {  # settings of a stack with the supported values
    "activation": tuple(ACTIVATION_NAMES),
    "gated": (False, True),
    "ffn_bias": (True, False),
    "attention_bias": ("qkvo", ""),
    "norm": ("layer", "rms"),
    "norm_position": ("post", "pre"),
    "positions": ("sinusoidal_interleaved", "sinusoidal", "sinusoidal_tensor2tensor", "learned", "none"),
    "embedding_norm": (False, True),
}
SIZES = {"d_model", "n_layers", "n_heads", "d_head", "d_ff", "max_len", "position_offset", "count_from"}
RELATIVE = {"relative_buckets", "relative_distance", "score_scale"}
FREE = SIZES | RELATIVE | {"n_kv_heads", "rotary"} | {"dropout", "embedding_scale", "norm_eps"}  # settings of any value


def check_ctranslate2(exported: Exportable) -> None:
    """`UserError` if the format cannot represent the model, or the library is missing."""
    if isinstance(exported, ExportedModel):
        c = exported.config
        check_supported(
            exported,
            "CTranslate2",
            (c.positions not in ("sinusoidal", "learned", "rotary"), f"{c.positions} positions"),
            (has_uneven_heads(c), "head counts or sizes that differ between layers"),
        )
    check_supported(exported, "CTranslate2", *((True, axis) for axis in unsupported_axes(exported.axes)))
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise UserError(f"--to ctranslate2 needs the library: {INSTALL}") from None


def unsupported_axes(config: NetworkConfig) -> list[str]:
    """The settings of an encoder-decoder that this export does not support."""
    stacks = stacks_of(config)
    uneven = ["two different norms"] if len({(stack.norm, stack.norm_eps) for stack in stacks.values()}) > 1 else []
    return uneven + [f"{side}.{axis}" for side, stack in stacks.items() for axis in _unsupported_axes(stack)]


def _unsupported_axes(stack: StackConfig) -> list[str]:
    plain = asdict(StackConfig(stack.d_model, stack.n_layers, stack.n_heads, stack.d_ff, stack.d_head))
    held = {name: (value,) for name, value in plain.items()}
    held |= SUPPORTED | {"d_v": (0, stack.d_head)}
    values = {name: value for name, value in asdict(stack).items() if name not in FREE}
    unsupported = [f"{name} = {value!r}" for name, value in values.items() if value not in held[name]]
    return unsupported + _unsupported_rotary(stack)


def _unsupported_rotary(stack: StackConfig) -> list[str]:
    if not stack.rotary:
        return []
    values = {"rotary.scaling": (stack.rotary.scaling, "none"), "rotary.width": (stack.rotary.width, stack.d_head)}
    return [f"{name} = {value!r}" for name, (value, held) in values.items() if value != held]


def write_ctranslate2(exported: Exportable, folder: Path, example: str, int8: bool) -> None:
    """Write the files that `ctranslate2.Translator` reads, the tokenizer, and a README with an example."""
    check_ctranslate2(exported)
    exported.write_tokenizer(folder)  # first: a pretrained model may have files of the same names
    write_model(exported, folder, exported.pieces, "int8" if int8 else "float32", exported.suppressed)
    page = USE if isinstance(exported, ExportedModel) else USE_PUBLISHED
    eos = exported.pieces[exported.special.eos_id]
    begins = ", ".join(f'"{exported.pieces[i]}"' for i in exported.forced)
    text = page.format(example=example, eos=eos, begins=f", target_prefix=[[{begins}]]" if begins else "")
    (folder / "README.md").write_text(text, encoding="utf-8")


def write_model(
    exported: Exportable, folder: Path, pieces: Sequence[str], compute: str, suppressed: Sequence[int] = ()
) -> None:
    """Write what `ctranslate2.Translator` reads.

    Args:
        exported: the model.
        folder: an existing folder.
        pieces: the token of every id.
        compute: storage precision of the weights, "float32" or "int8".
        suppressed: ids that are never generated.
    """
    config, special = exported.axes, exported.special
    spec = empty_spec(config)
    # Copies, because CTranslate2 quantises in place.
    own = {
        name: value.clone()
        for name, value in exported.parameters().items()
        if not POSITION_PARAMETERS & {*name.split(".")}
    }
    for entry in entries(ctranslate2_names(config), config, {name: tuple(value.shape) for name, value in own.items()}):
        _set(spec, entry.key, file_tensor(entry, own).numpy())
    _set_positions(spec, config, exported.network)
    if suppressed:
        bias = own.get("head.output.bias", torch.zeros(len(pieces))).clone()
        bias[list(suppressed)] = SUPPRESSED_BIAS
        spec.decoder.projection.bias = bias.numpy()
    read = exported.read_pieces
    spec.register_source_vocabulary(list(pieces if len(read) == len(pieces) and read == exported.pieces else read))
    spec.register_target_vocabulary(list(pieces))
    spec.config.decoder_start_token = spec.config.bos_token = pieces[special.bos_id]
    spec.config.eos_token, spec.config.unk_token = pieces[special.eos_id], pieces[special.unk_id]
    spec.validate()
    spec.optimize(quantization=None if compute == "float32" else compute)
    spec.save(str(folder))


def empty_spec(config: NetworkConfig) -> Any:
    """CTranslate2's specification of such a network, without weights."""
    from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec

    def side(kind: Any, stack: StackConfig) -> Any:
        spec = kind(
            stack.n_layers,
            stack.n_heads,
            pre_norm=stack.norm_position == "pre",
            activation=common_spec.Activation[ACTIVATION_NAMES[stack.activation]],
            layernorm_embedding=stack.embedding_norm,
            ffn_glu=stack.gated,
            rms_norm=stack.norm == "rms",
            relative_attention_bias=stack.relative_buckets > 0,
            head_dim=stack.d_head if stack.d_head * stack.n_heads != stack.d_model else None,
            num_heads_kv=stack.n_kv_heads if stack.n_kv_heads not in (0, stack.n_heads) else None,
            **_rotary(stack),
        )
        if stack.embedding_scale != stack.d_model**0.5:
            spec.scale_embeddings = stack.embedding_scale
        return spec

    kinds = transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec
    sides = (side(kind, stack) for kind, stack in zip(kinds, stacks_of(config).values(), strict=True))
    spec: Any = TransformerSpec(*sides)
    if config.logit_scale != 1.0:
        spec.decoder.scale_outputs = config.logit_scale
    first = stacks_of(config)["encoder"]
    if first.norm_eps != EPS[first.norm]:
        spec.config.layer_norm_epsilon = first.norm_eps
    return spec


def _rotary(stack: StackConfig) -> dict[str, Any]:
    """Settings of rotary positions; both rotate components i and i + width / 2."""
    if not stack.rotary:
        return {}
    return {"rotary_dim": stack.rotary.width, "rotary_interleave": False, "rotary_base": stack.rotary.base}


def _set_positions(spec: Any, config: NetworkConfig, network: Transformer) -> None:
    """Position tables or relative attention biases (shared by the layers of a stack), and attention scales."""
    fronts = {"encoder": network.src_embeddings, "decoder": network.tgt_embeddings}
    for side, stack in stacks_of(config).items():
        their, own = getattr(spec, side), getattr(network, side)
        if not stack.relative_buckets and not stack.rotary:
            their.position_encodings.encodings = position_table(fronts[side]).numpy()
        for layer in their.layer:
            if stack.relative_buckets:
                layer.self_attention.relative_attention_bias = own.reach.buckets.weight.detach().clone().numpy()
                layer.self_attention.relative_attention_max_distance = np.int32(stack.relative_distance)
            for attention in (layer.self_attention, getattr(layer, "attention", None)):
                if stack.score_scale and attention is not None:
                    attention.queries_scale = stack.score_scale


def _set(spec: Any, key: str, value: NDArray[np.float32]) -> None:
    """Set one tensor; list indices follow the name of the list."""
    *path, kind = key.split(".")
    for part in path:
        name, _, i = part.rpartition("_")
        spec = getattr(spec, part) if hasattr(spec, part) else getattr(spec, name)[int(i)]
    setattr(spec, NORM[kind] if hasattr(spec, "gamma") else kind, value)


def greedy_by_ctranslate2(exported: Exportable, folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Greedy translations of the written model by CTranslate2: ids without EOS, at most MAX_NEW_TOKENS."""
    import ctranslate2

    pieces, read = exported.pieces, exported.read_pieces
    ids = {piece: i for i, piece in enumerate(pieces)}
    translator = ctranslate2.Translator(str(folder), intra_threads=1)
    results = translator.translate_batch(
        [[read[i] for i in source] for source in exported.sources(texts)],
        target_prefix=[[pieces[i] for i in exported.forced]] * len(texts) if exported.forced else None,
        beam_size=1,
        min_decoding_length=0,  # our output may be empty, theirs not by default
        max_decoding_length=MAX_NEW_TOKENS,
    )
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]
