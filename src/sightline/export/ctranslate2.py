"""A folder for CTranslate2, written by its own converter library.

Its Transformer is ours: norms first or last, any table of positions, so everything but heads of an odd width has its
place. Not here: how its search differs (its length penalty has another formula than ours).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import UserError
from sightline.export.exported import LENGTH, Exported, has_uneven_heads, position_table, refuse

INSTALL = "pip install 'sightline[ctranslate2]'"
NEVER = -1e4  # bias on the logit of a piece that is never written; float16 holds it

USE = """\
A translation model for CTranslate2, made by Sightline.

```python
import ctranslate2, tokenizers

tokenizer = tokenizers.Tokenizer.from_file(FOLDER + "/tokenizer.json")
translator = ctranslate2.Translator(FOLDER)
pieces = tokenizer.encode("{example}").tokens + ["{eos}"]
found = translator.translate_batch([pieces], beam_size=4)[0].hypotheses[0]
print(tokenizer.decode([tokenizer.token_to_id(piece) for piece in found]))
```
"""

Tensors = Mapping[str, NDArray[np.float32]]


def check(exported: Exported) -> None:
    """`UserError` where the format cannot hold the model, or the library is not installed."""
    refuse(exported, "CTranslate2", (has_uneven_heads(exported.config), "heads of their own width or number"))
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise UserError(f"--to ctranslate2 needs its library: {INSTALL}") from None


def write(exported: Exported, folder: Path, int8: bool, example: str) -> None:
    """Everything `ctranslate2.Translator` reads, the tokenizer, and a page on how to use them."""
    check(exported)
    write_model(exported, folder, exported.pieces, "int8" if int8 else "float32", exported.suppressed)
    exported.tokenizer.save(folder / "tokenizer.json")
    eos = exported.pieces[exported.tokenizer.eos_id]
    (folder / "README.md").write_text(USE.format(example=example, eos=eos), encoding="utf-8")


def write_model(
    exported: Exported, folder: Path, pieces: Sequence[str], compute: str, suppressed: Sequence[int] = ()
) -> None:
    """What `ctranslate2.Translator` reads.

    Args:
        exported: what to write.
        folder: an existing folder.
        pieces: the name of every id.
        compute: numbers the weights are stored in, "float32" or "int8".
        suppressed: ids that it is never to write.
    """
    from ctranslate2.specs import TransformerSpec

    c, t = exported.config, exported.tokenizer
    pre_norm = c.norm_position == "pre"
    spec: Any = TransformerSpec.from_config((c.n_encoder_layers, c.n_decoder_layers), c.n_heads, pre_norm=pre_norm)
    # Copies, because CTranslate2 quantises in place.
    tensors = {name: value.numpy().copy() for name, value in exported.parameters().items()}
    spec.encoder.embeddings[0].weight = tensors["src_embeddings.tokens.weight"]
    spec.decoder.embeddings.weight = tensors["tgt_embeddings.tokens.weight"]
    network = exported.network
    for side, theirs, ours in (
        ("encoder", spec.encoder, network.src_embeddings),
        ("decoder", spec.decoder, network.tgt_embeddings),
    ):
        theirs.position_encodings.encodings = position_table(ours).numpy()
        if pre_norm:
            _norm(theirs.layer_norm, tensors, f"{side}.norm")
        for i, layer in enumerate(theirs.layer):
            _layer(layer, tensors, f"{side}.layers.{i}")
    spec.decoder.projection.weight = tensors["head.output.weight"]
    if suppressed:
        spec.decoder.projection.bias = np.zeros(c.vocab_size, np.float32)
        spec.decoder.projection.bias[list(suppressed)] = NEVER
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces))
    spec.config.decoder_start_token = spec.config.bos_token = pieces[t.bos_id]
    spec.config.eos_token, spec.config.unk_token = pieces[t.eos_id], pieces[t.unk_id]
    spec.validate()
    spec.optimize(quantization=None if compute == "float32" else compute)
    spec.save(str(folder))


def _layer(layer: Any, tensors: Tensors, name: str) -> None:
    def linear(spec: Any, *names: str) -> None:
        spec.weight = np.concatenate([tensors[f"{name}.{part}.weight"] for part in names])
        spec.bias = np.concatenate([tensors[f"{name}.{part}.bias"] for part in names])

    linear(layer.self_attention.linear[0], "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    linear(layer.self_attention.linear[1], "self_attn.o_proj")
    _norm(layer.self_attention.layer_norm, tensors, f"{name}.self_attn_sublayer.norm")
    if f"{name}.cross_attn.q_proj.weight" in tensors:
        linear(layer.attention.linear[0], "cross_attn.q_proj")
        linear(layer.attention.linear[1], "cross_attn.k_proj", "cross_attn.v_proj")
        linear(layer.attention.linear[2], "cross_attn.o_proj")
        _norm(layer.attention.layer_norm, tensors, f"{name}.cross_attn_sublayer.norm")
    linear(layer.ffn.linear_0, "ffn.up_proj")
    linear(layer.ffn.linear_1, "ffn.down_proj")
    _norm(layer.ffn.layer_norm, tensors, f"{name}.ffn_sublayer.norm")


def _norm(spec: Any, tensors: Tensors, name: str) -> None:
    spec.gamma, spec.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def greedy(exported: Exported, folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Greedy translations by CTranslate2 of what `write` wrote, in ids without end marks, at most LENGTH steps."""
    import ctranslate2

    names = exported.pieces
    ids = {name: i for i, name in enumerate(names)}
    translator = ctranslate2.Translator(str(folder), intra_threads=1)
    sources = [[*tokens, exported.tokenizer.eos_id] for tokens in exported.tokenizer.encode_batch(texts)]
    results = translator.translate_batch(
        [[names[i] for i in source] for source in sources], beam_size=1, max_decoding_length=LENGTH
    )
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]
