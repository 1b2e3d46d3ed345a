"""Read translation models of CTranslate2: encoder-decoders that its converters made from Marian, opus-mt, OpenNMT, Eole
or fairseq.

The network is read from `model.bin` alone: settings from the variables, positions from their table. Settings that our
networks do not have are errors. Not here: the format of the file (`ctranslate2_file`), Whisper, encoders, decoders.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headwise.checkpoint.ctranslate2_file import MODEL_FILE, CTranslate2File, read_ctranslate2_file
from headwise.checkpoint.ctranslate2_names import EPS, NORM, ctranslate2_names, stacks_of
from headwise.checkpoint.layout import CONFIG, read_json
from headwise.errors import UserError
from headwise.families.table import entries
from headwise.network.build import build_empty
from headwise.network.config import NetworkConfig, StackConfig
from headwise.network.positions import halved_sinusoids, sinusoids, tensor2tensor_sinusoids

ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", "quick_gelu")  # by number
SINUSOIDS: dict[str, Callable[[int, int], Float[Tensor, "length d_model"]]] = {
    "sinusoidal_interleaved": sinusoids,
    "sinusoidal": halved_sinusoids,
    "sinusoidal_tensor2tensor": tensor2tensor_sinusoids,
}
# Tables of different kinds differ by about 1; those of one kind by rounding, also to bfloat16 (2^-8).
SAME_POSITIONS = 2e-2
NO_EFFECT = ("alignment_layer", "alignment_heads", "alibi_use_positive_positions", "embeddings_merge")
OFF = ("alibi", "scale_alibi", "multi_query_attention")  # settings that must be 0
NEVER_BIAS = -1e4  # on the logit of a token that is never generated
SENTENCEPIECE = ("sentencepiece.model", "spm.model", "sentencepiece.bpe.model")


@dataclass(frozen=True)
class ForeignModel:
    """A model of another program, with everything that its folder needs here."""

    config: NetworkConfig
    tensors: Mapping[str, Tensor]  # by our names
    about: Mapping[str, Any]  # in the form of a config.json of the Hugging Face layout
    lists: Mapping[str, Mapping[str, int]]  # files of vocabularies, and the tokens with their ids
    copies: Mapping[str, Path]  # files to copy, by their new names


def read_ctranslate2(folder: Path, pieces_from: Path | None = None) -> ForeignModel:
    """The model in a folder.

    Args:
        folder: has `model.bin`, `config.json` in versions since 3, and the vocabulary.
        pieces_from: the SentencePiece model, if it is not in the folder.

    Raises:
        UserError: not a translation model, without a tokenizer, damaged, or with a setting that is not supported.
    """
    file = read_ctranslate2_file(folder / MODEL_FILE)
    if file.kind != "TransformerSpec":
        raise UserError(f"{folder}: a {file.kind[:60]} of CTranslate2, which is not supported: import its original")
    values = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    return translation_model(file, values, folder, _vocabularies(folder), pieces_from)


def translation_model(
    file: CTranslate2File,
    values: Mapping[str, Any],
    folder: Path,
    vocabularies: tuple[Sequence[str], Sequence[str]],
    pieces_from: Path | None = None,
) -> ForeignModel:
    """A model from its variables.

    Args:
        file: variables by the names of CTranslate2.
        values: settings of its config.json.
        folder: has the SentencePiece models, if `pieces_from` does not name one; also for messages.
        vocabularies: tokens of source and target, by id.

    Raises:
        UserError: as for `read_ctranslate2`.
    """
    read, written = vocabularies
    config, start = _network_config(file, values, str(folder))
    tensors = _tensors(file, config, str(folder))
    _check_sizes(folder, config, len(read), len(written) + (start is not None))
    lists, copies, has_end = _tokenizer(folder, pieces_from, file, values, read, written)
    about = _about(values, written, start, has_end)
    return ForeignModel(config, tensors, about, lists, copies)


# --- the network


def _network_config(file: CTranslate2File, values: Mapping[str, Any], origin: str) -> tuple[NetworkConfig, int | None]:
    """The configuration, and the id of a start token without an embedding (Marian), which is added."""
    encoder, decoder = (_stack(file, side, values, origin) for side in ("encoder", "decoder"))
    source, target = (file.weight(_embeddings(file, side)) for side in ("encoder", "decoder"))
    starts_from_zero = file.number("decoder/start_from_zero_embedding") > 0
    shared = source.shape == target.shape and np.array_equal(source, target)
    output = file.weight("decoder/projection/weight")
    config = NetworkConfig(
        "marian",
        vocab_size=len(source) + (shared and starts_from_zero),
        encoder=encoder,
        decoder=decoder,
        head_bias="decoder/projection/bias" in file.variables or starts_from_zero,
        share_embeddings=shared,
        tgt_vocab_size=0 if shared else len(target) + starts_from_zero,
        tie_head=output.shape == target.shape and np.array_equal(output, target),
        logit_scale=file.number("decoder/scale_outputs", 1.0) or 1.0,
    )
    return config, len(target) if starts_from_zero else None


def _embeddings(file: CTranslate2File, side: str) -> str:
    name = f"{side}/embeddings_0/weight"
    return name if name in file.variables else f"{side}/embeddings/weight"


def _stack(file: CTranslate2File, side: str, values: Mapping[str, Any], origin: str) -> StackConfig:
    known = file.variables
    first = f"{side}/layer_0"
    needed = [_embeddings(file, side), f"{first}/self_attention/linear_0/weight", f"{first}/ffn/linear_0/weight"]
    for name in needed:
        if name not in known or known[name].ndim != 2:
            raise UserError(f"{origin}: {MODEL_FILE} has no matrix {name}; convert the model again with CTranslate2 4")
    d_model = known[needed[0]].shape[1]
    n_heads = int(file.number(f"{side}/num_heads", file.number("num_heads", 8.0)))
    rows = known[needed[1]].shape[0]
    activation = int(file.number(f"{side}/activation"))
    if n_heads < 1 or rows % (3 * n_heads) or not 0 <= activation < len(ACTIVATIONS):
        raise UserError(f"{origin}: {side} with {n_heads} heads over {rows} rows, or with activation {activation}")
    norm = "layer" if f"{first}/ffn/layer_norm/beta" in known else "rms"
    scale = known.get(f"{side}/scale_embeddings", np.int8(1))
    bias = f"{first}/self_attention/linear_0/bias" in known
    stack = StackConfig(
        d_model,
        n_layers=sum(f"{side}/layer_{n}/ffn/linear_0/weight" in known for n in range(len(known))),
        n_heads=n_heads,
        d_ff=known[needed[2]].shape[0],
        d_head=rows // 3 // n_heads,
        attention_bias="qkvo" if bias else "",
        activation=ACTIVATIONS[activation],
        gated=f"{first}/ffn/linear_0_noact/weight" in known,
        ffn_bias=f"{first}/ffn/linear_0/bias" in known,
        norm=norm,
        norm_eps=float(values.get("layer_norm_epsilon") or EPS[norm]),
        norm_position="pre" if file.number(f"{side}/pre_norm", 1.0) else "post",
        embedding_scale=float(scale) * (d_model**0.5 if scale.dtype == np.int8 else 1.0) or 1.0,
        embedding_norm=f"{side}/layernorm_embedding/gamma" in known,
    )
    return replace(stack, **_positions(file, side, d_model))


def _positions(file: CTranslate2File, side: str, d_model: int) -> dict[str, Any]:
    """The kind of a table of positions; without a table, CTranslate2 computes OpenNMT-tf's, which count from 1."""
    name = f"{side}/position_encodings/encodings"
    if name not in file.variables:
        return {"positions": "sinusoidal_tensor2tensor", "position_offset": 1}
    table = file.weight(name)
    for kind, codes in SINUSOIDS.items():
        for offset in (0, 1, 2):
            computed = codes(len(table) + offset, d_model)[offset:].numpy()
            if np.abs(table - computed).max() < SAME_POSITIONS:
                return {"positions": kind, "position_offset": offset}
    return {"positions": "learned", "max_len": len(table)}


def _tensors(file: CTranslate2File, config: NetworkConfig, origin: str) -> dict[str, Tensor]:
    """Our tensors; `UserError` if one is missing, or if the file has others."""
    shapes = {name: tuple(one.shape) for name, one in build_empty(config).named_parameters()}
    tensors, used = dict[str, NDArray[np.float32]](), set[str]()
    for side, front in (("encoder", "src_embeddings"), ("decoder", "tgt_embeddings")):
        if f"{front}.positions.table.weight" in shapes:
            tensors[f"{front}.positions.table.weight"] = file.weight(f"{side}/position_encodings/encodings")
        used |= {f"{side}/position_encodings/encodings", f"{side}/layer_norm/gamma", f"{side}/layer_norm/beta"}
        used |= {_embeddings(file, side)}
    left = {name: shape for name, shape in shapes.items() if name not in tensors}
    for entry in entries(ctranslate2_names(config), config, left):
        name = _variable(file, entry.key)
        if name not in file.variables:
            if entry.names == ["head.output.bias"]:
                continue
            raise UserError(f"{origin}: {MODEL_FILE} has no {name}; convert the model again with CTranslate2 4")
        used.add(name)
        tensors |= entry.to_own(file.weight(name))
    used |= {"decoder/projection/weight", "decoder/projection/bias"}
    _refuse_others(file, used, config, origin)
    return {name: torch.from_numpy(_with_start(name, tensors.get(name), shape)) for name, shape in shapes.items()}


def _variable(file: CTranslate2File, key: str) -> str:
    """The name in the file for a key of the table."""
    path, _, kind = key.rpartition(".")
    if "norm" in path.rpartition(".")[2]:
        kind = NORM[kind]
    name = f"{path}.{kind}".replace(".", "/")
    return _embeddings(file, "encoder") if name == "encoder/embeddings_0/weight" else name


def _with_start(name: str, values: NDArray[np.float32] | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A tensor with a row for an added start token: an embedding of zeros that is never generated."""
    if values is None:
        values = np.zeros(shape[0] - 1, np.float32)
    if len(values) == shape[0] - 1:
        row = np.full((1, *shape[1:]), NEVER_BIAS if name == "head.output.bias" else 0.0, np.float32)
        values = np.concatenate([values, row])
    if values.shape != shape:
        raise UserError(f"{MODEL_FILE}: {name} has the shape {values.shape} instead of {shape}; it is damaged")
    return np.ascontiguousarray(values)


def _refuse_others(file: CTranslate2File, used: set[str], config: NetworkConfig, origin: str) -> None:
    """`UserError` for variables that change results and have no counterpart here."""
    read = {f"{side}/{name}" for side in stacks_of(config) for name in ("num_heads", "activation", "scale_embeddings")}
    read |= {"num_heads", "decoder/start_from_zero_embedding", "decoder/scale_outputs"}
    read |= {f"{side}/pre_norm" for side in stacks_of(config)} | used | {f"{name}_scale" for name in used}
    others = [
        name
        for name, value in file.variables.items()
        if name not in read
        and name.rpartition("/")[2] not in NO_EFFECT
        and not (name.rpartition("/")[2] in (*OFF, "scale_outputs") and not np.any(value))
    ]
    if others:
        raise UserError(
            f"{origin}: {MODEL_FILE} has {', '.join(others[:5])}, which is not supported: import its original"
        )


# --- the vocabulary


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The tokens of source and target, by id."""
    for names in (("shared_vocabulary",), ("source_vocabulary", "target_vocabulary"), ("vocabulary",)):
        files = [next(filter(Path.is_file, (folder / f"{name}.json", folder / f"{name}.txt")), None) for name in names]
        if all(files):
            read, *written = [_tokens(file) for file in files if file]
            return read, written[0] if written else read
    raise UserError(
        f"{folder}: has no vocabulary (shared_vocabulary.json, or source and target); copy it beside the model"
    )


def _tokens(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a vocabulary ({error})") from None
    if not isinstance(found, list) or not all(isinstance(token, str) for token in found):
        raise UserError(f"{path}: must be a list of tokens")
    return found


def _check_sizes(folder: Path, config: NetworkConfig, read: int, written: int) -> None:
    wanted = config.vocab_size, config.tgt_vocab_size or config.vocab_size
    if (written if config.share_embeddings else read, written) != wanted:
        raise UserError(f"{folder}: its vocabularies have {read} and {written} tokens, and the model {wanted}")


def _tokenizer(
    folder: Path,
    pieces_from: Path | None,
    file: CTranslate2File,
    values: Mapping[str, Any],
    read: Sequence[str],
    written: Sequence[str],
) -> tuple[dict[str, dict[str, int]], dict[str, Path], bool]:
    """Lists of tokens, files to copy, and whether a source ends with the end token.

    Two SentencePiece models are Marian's, whose sources end with it; OpenNMT's do if the settings say so.
    """
    lists = {"vocab.json": {token: i for i, token in enumerate(read)}}
    if list(read) != list(written):
        lists["target_vocab.json"] = {token: i for i, token in enumerate(written)}
    pair = folder / "source.spm", folder / "target.spm"
    if all(path.is_file() for path in pair):
        return lists, {path.name: path for path in pair}, True
    alone = pieces_from or next((folder / name for name in SENTENCEPIECE if (folder / name).is_file()), None)
    if alone is None:
        wanted = "source.spm and target.spm, or sentencepiece.model"
        raise UserError(f"{folder}: has no tokenizer; copy {wanted} from the original model into the folder")
    has_end = bool(values.get("add_source_eos")) or file.number("decoder/start_from_zero_embedding") > 0
    return lists, {"source.spm": alone, "target.spm": alone}, has_end


def _about(values: Mapping[str, Any], written: Sequence[str], start: int | None, has_end: bool) -> dict[str, Any]:
    """The settings of `generation_config` and `vocabulary`."""
    ids = {token: i for i, token in enumerate(written)}
    eos = ids.get(str(values.get("eos_token", "</s>")))
    first = start if start is not None else ids.get(str(values.get("decoder_start_token", "<s>")))
    if eos is None or first is None:
        raise UserError("the vocabulary has no end token or no start token of the decoder; copy it again")
    return {
        "model_type": "marian",
        "decoder_start_token_id": first,
        "eos_token_id": eos,
        "pad_token_id": ids.get("<blank>", first),
        "num_beams": 4,
        "max_length": 512,
        "add_source_eos": has_end,
    }
