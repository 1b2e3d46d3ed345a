"""The same weights for every decoder: a model of ours as a model directory, for CTranslate2 and for transformers.

Positions are exported as the table we use, because libraries order sines and cosines differently. Post-norm models
become a MarianMTModel, pre-norm ones an M2M100, which is the same network with the norms in front.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from torch import Tensor
from work import BOS, EOS, PAD, SIZES, UNK

from sightline.config import ModelConfig, RunConfig
from sightline.data.tokenizer import Tokenizer
from sightline.model.build import build_model
from sightline.model.parameters import parameters_of
from sightline.model.transformer import Transformer
from sightline.model_directory import read_model_directory, write_settings, write_weights

SPECIAL = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
POSITIONS = 512  # exported


def vocabulary(size: int) -> list[str]:
    """A name for every id, for libraries that want strings: `w17` for 17, and the special ones.

    >>> vocabulary(6)
    ['<pad>', '<s>', '</s>', '<unk>', 'w4', 'w5']
    """
    return [SPECIAL.get(i, f"w{i}") for i in range(size)]


def random_model(size_name: str, folder: Path) -> Path:
    """A model of that size with fresh parameters, whose tokenizer reads text such as `w17 w29`, in all formats."""
    size = SIZES[size_name]
    torch.manual_seed(1)
    model = _decided(build_model(size.config()).eval())
    words = {word: i for i, word in enumerate(vocabulary(size.vocab_size))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=SPECIAL[UNK]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(list(SPECIAL.values()))
    config = RunConfig(model=size.config())
    write_settings(folder / "sightline", config, Tokenizer(backend), {})
    write_weights(folder / "sightline", parameters_of(model), "random parameters, for measuring speed")
    return export(folder / "sightline", folder)


def _decided(model: Transformer) -> Transformer:
    """The model with large weights in every layer. As training starts, with small ones where the residual stream is
    added to, it would repeat what it was given, the start mark first, which some libraries allow and some do not.
    """
    for stack in (model.encoder, model.decoder):
        for module in stack.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
    return model


def export(model_directory: Path, folder: Path) -> Path:
    """Write what the peers read beside each other into `folder`; returns it."""
    directory = read_model_directory(model_directory)
    config, model = directory.config.model, directory.network
    assert isinstance(model, Transformer), "only Transformers are exported"
    assert (config.positions, config.tied_embeddings) == ("sinusoidal", "all"), "only this kind is exported"
    for compute in ("float32", "int8"):
        export_ctranslate2(model, config, folder / f"ctranslate2-{compute}", compute)
    export_transformers(model, config, folder / "transformers")
    if model_directory.parent != folder and not (folder / "sightline").exists():
        (folder / "sightline").symlink_to(model_directory.absolute())
    return folder


def position_table(model: Transformer) -> Tensor:
    """Our positions, (POSITIONS, d_model)."""
    return model.src_embeddings.positions(0, POSITIONS).clone()


def export_ctranslate2(model: Transformer, config: ModelConfig, folder: Path, compute: str) -> None:
    """A CTranslate2 model directory with float32 or int8 weights."""
    from ctranslate2.specs import TransformerSpec

    pre_norm = config.norm_position == "pre"
    layers = (config.n_encoder_layers, config.n_decoder_layers)
    spec = TransformerSpec.from_config(layers, config.n_heads, pre_norm=pre_norm)
    # Copies, because CTranslate2 quantises in place.
    tensors = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    positions = position_table(model).numpy()
    for ours, theirs in (("src_embeddings", spec.encoder.embeddings[0]), ("tgt_embeddings", spec.decoder.embeddings)):
        theirs.weight = tensors[f"{ours}.tokens.weight"]
    for side, theirs in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        theirs.position_encodings.encodings = positions
        if pre_norm:
            _norm(theirs.layer_norm, tensors, f"{side}.norm")
        for i, layer in enumerate(theirs.layer):
            _ctranslate2_layer(layer, tensors, f"{side}.layers.{i}")
    spec.decoder.projection.weight = tensors["output.weight"]
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(vocabulary(config.vocab_size))
    spec.config.decoder_start_token = SPECIAL[BOS]
    spec.validate()
    spec.optimize(quantization=None if compute == "float32" else compute)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _ctranslate2_layer(layer: Any, tensors: dict[str, Any], name: str) -> None:
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


def _norm(spec: Any, tensors: dict[str, Any], name: str) -> None:
    spec.gamma, spec.beta = tensors[f"{name}.weight"], tensors[f"{name}.bias"]


NAMES = {  # ours -> transformers', within a layer
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn_sublayer.norm": "self_attn_layer_norm",
    "cross_attn.o_proj": "encoder_attn.out_proj",
    "cross_attn_sublayer.norm": "encoder_attn_layer_norm",
    "cross_attn": "encoder_attn",
    "ffn_sublayer.norm": "final_layer_norm",
    "ffn.up_proj": "fc1",
    "ffn.down_proj": "fc2",
}


def export_transformers(model: Transformer, config: ModelConfig, folder: Path) -> None:
    """A checkpoint for `from_pretrained`; load it with `load_transformers`, which puts the positions in."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel

    pre_norm = config.norm_position == "pre"
    make_config, make = (M2M100Config, M2M100ForConditionalGeneration) if pre_norm else (MarianConfig, MarianMTModel)
    theirs = make(
        make_config(
            vocab_size=config.vocab_size,
            d_model=config.d_model,
            encoder_layers=config.n_encoder_layers,
            decoder_layers=config.n_decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            activation_function="relu",
            max_position_embeddings=POSITIONS,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
            attn_implementation="sdpa",
        )
    )
    wanted = {_transformers_name(name): value for name, value in model.state_dict().items() if "positions" not in name}
    missing, unexpected = theirs.load_state_dict(wanted, strict=False)
    left = [
        name for name in missing if not name.startswith(("final_logits_bias", "model.shared")) and "pos" not in name
    ]
    assert not unexpected and not left, (unexpected, left)
    theirs.save_pretrained(folder)


def _transformers_name(name: str) -> str:
    if "tokens" in name:
        return f"model.{'encoder' if name.startswith('src') else 'decoder'}.embed_tokens.weight"
    if name == "output.weight":
        return "lm_head.weight"
    side, *rest = name.split(".")
    if rest[0] == "norm":
        return f"model.{side}.layer_norm.{rest[1]}"
    _, i, *path = rest
    inner = ".".join(path)
    old = next((old for old in NAMES if inner.startswith(old + ".")), None)
    return f"model.{side}.layers.{i}.{NAMES[old] + inner[len(old) :] if old else inner}"


def load_transformers(folder: Path, positions: Tensor) -> Any:
    """The exported checkpoint with our positions."""
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    for side in (model.model.encoder, model.model.decoder):
        place = side.embed_positions
        if hasattr(place, "weights"):  # M2M100: counted from padding_idx + 1
            place.weights = torch.cat([positions.new_zeros(PAD + 1, positions.size(1)), positions])
        else:
            place.weight.data = positions
    return model
