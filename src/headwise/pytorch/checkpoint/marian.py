"""Translation models of Marian (`.npz`), with their vocabularies: files of Marian itself and of opus-mt.

The settings are inside the file, as `special:model.yml`. Variables get the names of CTranslate2, so that there is one
way from there to our network. See `families.marian` for Marian's models in the Hugging Face layout.

Marian writes its settings and vocabularies in YAML that has nothing nested in it but lists. Everything is text, as
Marian reads tokens: `no`, `null` and `1` are three words. U+0085 and U+2028 end lines in YAML 1.1, which PyYAML writes,
but not in YAML 1.2, which Marian writes; a file is read as the one that it fits.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from headwise.core.positions import halved_sinusoids
from headwise.errors import UserError
from headwise.pytorch.checkpoint.ctranslate2_folder import ACTIVATIONS, MARIAN, ForeignModel, translation_model
from headwise.runtime.formats.archives import bounded_archive
from headwise.runtime.formats.ctranslate2_file import CTranslate2File
from headwise.runtime.tokenizers.sentencepiece_file import sentencepiece_model
from headwise.runtime.tokenizers.vocabulary import is_text

SETTINGS, DECODER = "special:model.yml", "decoder.yml"
NORM_EPS = 1e-6  # https://github.com/marian-nmt/marian-dev/blob/master/src/models/transformer.h
POSITIONS = 256  # rows of the table by which positions are recognised
FUNCTIONS = {"relu": "relu", "swish": "silu", "gelu": "quick_gelu"}
NORMS = {("", "dan", ""): False, ("n", "da", "n"): True}  # before and after each part, at the top: whether pre-norm
NORM_KEYS = ("preprocess", "postprocess", "postprocess-top")
REQUIRED = {  # settings, each with the values that are supported; others are not known here
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-no-projection": ("false",),
    "transformer-no-affine": ("false",),
    "transformer-no-bias": ("false",),
    "transformer-rnn-projection": ("false",),
    "transformer-train-position-embeddings": ("false",),
    "transformer-postprocess-emb": ("", "d", "n", "nd"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "input-types": ("[]",),
    "lemma-dim-emb": ("0",),
}
VOCABULARIES = (".yml", ".yaml", ".spm")
BREAKS = "\u0085\u2028\u2029"
# These and others that YAML 1.1 forbids are exchanged for characters that no text has.
STRANGE = [*BREAKS, "\ufeff", "\ufffe", "\uffff", *map(chr, (*range(9), 11, 12, *range(14, 32), *range(127, 160)))]
HIDDEN = {ord(one): chr(0xF0000 + i) for i, one in enumerate(dict.fromkeys(STRANGE))}
SHOWN = {ord(hidden): chr(one) for one, hidden in HIDDEN.items()}
YamlEntry = tuple[str, str | list[str], int]  # key, value, line from 1


def marian_file(path: Path) -> Path | None:
    """The file of a Marian model: the path itself, or the one in a folder; None if there is none.

    Raises:
        UserError: a folder with several models.
    """
    if path.is_file():
        return path if path.suffix == ".npz" and _is_model(path) else None
    listed = _listed(path / DECODER, "models")
    found = [path / name for name in listed] or [file for file in sorted(path.glob("*.npz")) if _is_model(file)]
    if len(found) > 1:
        raise UserError(f"{path}: has several models of Marian ({', '.join(one.name for one in found[:3])}); name one")
    return found[0] if found and _is_model(found[0]) else None


def read_marian(path: Path) -> ForeignModel:
    """The model in a file; its vocabularies and SentencePiece models are beside it.

    Raises:
        UserError: damaged, without vocabulary or tokenizer, or with a setting that is not supported.
    """
    try:
        with bounded_archive(path) as archive:
            arrays = {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}
    except (BadZipFile, ZlibError, EOFError, OSError, RuntimeError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path}: not a model of Marian, or damaged ({error}); download it again") from None
    read = yaml_entries(path, _settings_text(path, arrays))
    settings = {key: value if isinstance(value, str) else f"[{', '.join(value)}]" for key, value, _ in read}
    is_pre_norm = _check(path, settings)
    try:
        variables = dict(_variables(path, arrays, settings, is_pre_norm))
    except ValueError as error:  # of numpy
        raise UserError(f"{path}: its matrices do not fit together ({error}); the file is damaged") from None
    files = _vocabulary_files(path)
    pieces = files[0] if len({*files}) == 1 and files[0].suffix == ".spm" else None
    values = {"layer_norm_epsilon": NORM_EPS, "add_source_eos": True}
    vocabularies = _tokens(files[0]), _tokens(files[-1])
    return translation_model(CTranslate2File(MARIAN, 0, variables), values, path.parent, vocabularies, pieces)


def _array(content: bytes) -> NDArray[Any]:
    """An array of an archive; `ValueError` if its content is not as long as its header says, or of another type."""
    file = BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.kind not in "fiu" or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of {dtype} with the shape {shape} in {len(content):,} bytes")
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order="F" if by_columns else "C")


def _is_model(path: Path) -> bool:
    try:
        with ZipFile(path) as archive:
            return f"{SETTINGS}.npy" in archive.namelist()
    except (BadZipFile, OSError, ValueError, NotImplementedError):
        return False


# --- settings


def _settings_text(path: Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    if SETTINGS not in arrays:
        raise UserError(f"{path}: has no {SETTINGS}; it is not the model but, for example, its optimizer")
    return arrays[SETTINGS].tobytes().decode("utf-8", "replace").rstrip("\0")


def _check(path: Path, settings: Mapping[str, str]) -> bool:
    """Whether normalisation comes first; `UserError` for settings that are not supported."""
    wrong = [key for key, known in REQUIRED.items() if settings.get(key, known[0]).lower() not in known]
    before, behind, top = (settings.get(f"transformer-{key}", "") for key in NORM_KEYS)
    norms = before, behind, top
    wrong += ["transformer-preprocess"] * (norms not in NORMS)
    wrong += ["transformer-ffn-activation"] * (settings.get("transformer-ffn-activation", "swish") not in FUNCTIONS)
    if wrong:
        named = ", ".join(f"{key} = {settings.get(key, '')}" for key in wrong)
        raise UserError(f"{path}: {named} is not supported; only Transformers of the usual kind are imported")
    return NORMS[norms]


def _number(path: Path, settings: Mapping[str, str], key: str, default: int) -> int:
    value = settings.get(key, str(default))
    if not re.fullmatch("[0-9]{1,4}", value):
        raise UserError(f"{path}: {key} = {value[:40]} is no number; the file is damaged")
    return int(value)


def _listed(path: Path, key: str) -> list[str]:
    """The entries of a list in a settings file, such as `models` in decoder.yml; empty without the file."""
    if not path.is_file():
        return []
    values = [value for name, value, _ in yaml_entries(path, _text(path)) if name == key]
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


# --- the network


def _variables(
    path: Path, arrays: Mapping[str, NDArray[Any]], settings: Mapping[str, str], is_pre_norm: bool
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The variables by the names of CTranslate2; `UserError` if one is missing, or if the file has others."""
    left = {name: array for name, array in arrays.items() if name != SETTINGS}
    if odd := [name for name, array in left.items() if array.dtype.kind != "f"]:
        raise UserError(f"{path}: {odd[0][:60]} is quantised; import the model that it was made from")
    reader = _Variables(path, left)
    activation = ACTIVATIONS.index(FUNCTIONS[settings.get("transformer-ffn-activation", "swish")])
    for side, short in (("encoder", "enc"), ("decoder", "dec")):
        name = f"{side}_Wemb"
        table = reader.take(name if name in left else "Wemb")
        yield f"{side}/embeddings{'_0' if side == 'encoder' else ''}/weight", table
        yield f"{side}/position_encodings/encodings", halved_sinusoids(POSITIONS, table.shape[1]).numpy()
        yield f"{side}/num_heads", np.array(_number(path, settings, "transformer-heads", 8), np.int16)
        yield f"{side}/pre_norm", np.array(is_pre_norm, np.int8)
        yield f"{side}/activation", np.array(activation, np.int8)
        yield f"{side}/scale_embeddings", np.array(1, np.int8)
        if "n" in settings.get("transformer-postprocess-emb", ""):
            yield from reader.norm(f"{side}/layernorm_embedding", f"{side}_emb")
        if is_pre_norm:
            yield from reader.norm(f"{side}/layer_norm", f"{side}_top")
        for layer in range(_number(path, settings, f"{short}-depth", 6)):
            yield from reader.layer(f"{side}/layer_{layer}", f"{side}_l{layer + 1}", side == "decoder")
        if side == "decoder":
            yield from reader.output(table)
    yield "decoder/start_from_zero_embedding", np.array(1, np.int8)
    if others := sorted(left.keys() - reader.used):
        raise UserError(
            f"{path}: has {', '.join(others)[:120]}, which is not supported; "
            "only Transformers of the usual kind are imported"
        )


class _Variables:
    """Tensors of a Marian model, and which of them were used."""

    def __init__(self, path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._path, self._arrays = path, arrays
        self.used = set[str]()

    def take(self, name: str) -> NDArray[np.float32]:
        """A matrix."""
        if name not in self._arrays:
            raise UserError(f"{self._path}: has no {name[:60]}; it is damaged, or not an ordinary Transformer")
        self.used.add(name)
        array = self._arrays[name]
        if array.ndim != 2:
            raise UserError(f"{self._path}: {name[:60]} has {array.ndim} dimensions instead of 2; the file is damaged")
        return array.astype(np.float32)

    def linear(self, name: str, scope: str, parts: Sequence[str]) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Linear layers with the same input as one."""
        yield f"{name}/weight", np.concatenate([self.take(f"{scope}_W{part}").T for part in parts])
        yield f"{name}/bias", np.concatenate([self.take(f"{scope}_b{part}").reshape(-1) for part in parts])

    def norm(self, name: str, scope: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """A layer norm before or after its part."""
        end = "_pre" if f"{scope}_ln_scale_pre" in self._arrays else ""
        yield f"{name}/gamma", self.take(f"{scope}_ln_scale{end}").reshape(-1)
        yield f"{name}/beta", self.take(f"{scope}_ln_bias{end}").reshape(-1)

    def layer(self, name: str, scope: str, is_decoder: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
        yield from self.linear(f"{name}/self_attention/linear_0", f"{scope}_self", "qkv")
        yield from self.linear(f"{name}/self_attention/linear_1", f"{scope}_self", "o")
        yield from self.norm(f"{name}/self_attention/layer_norm", f"{scope}_self_Wo")
        if is_decoder:
            yield from self.linear(f"{name}/attention/linear_0", f"{scope}_context", "q")
            yield from self.linear(f"{name}/attention/linear_1", f"{scope}_context", "kv")
            yield from self.linear(f"{name}/attention/linear_2", f"{scope}_context", "o")
            yield from self.norm(f"{name}/attention/layer_norm", f"{scope}_context_Wo")
        yield from self.linear(f"{name}/ffn/linear_0", f"{scope}_ffn", "1")
        yield from self.linear(f"{name}/ffn/linear_1", f"{scope}_ffn", "2")
        yield from self.norm(f"{name}/ffn/layer_norm", f"{scope}_ffn_ffn")

    def output(self, table: NDArray[np.float32]) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """The projection to the vocabulary, which may be the embeddings of the decoder."""
        name = "decoder_ff_logit_out"
        for known, turned in ((f"{name}_W", True), (f"{name}_Wt", False)):
            if known in self._arrays:
                table = self.take(known).T if turned else self.take(known)
        yield "decoder/projection/weight", table
        if f"{name}_b" in self._arrays:
            yield "decoder/projection/bias", self.take(f"{name}_b").reshape(-1)


# --- the vocabulary


def _vocabulary_files(path: Path) -> list[Path]:
    """The vocabularies of source and target, or one for both."""
    listed = [path.parent / name for name in _listed(path.parent / DECODER, "vocabs")]
    if listed:
        if missing := [file for file in listed if not file.is_file()]:
            raise UserError(f"{missing[0]}: no such file, which {DECODER} names as a vocabulary")
        return listed
    found = [
        file
        for file in sorted(path.parent.glob("*"))
        if file.name.endswith(tuple(f"vocab{end}" for end in VOCABULARIES)) or file.name.startswith("vocab.")
        if file.suffix in VOCABULARIES
    ]
    if len(found) != 1:
        what = f"{len(found)} vocabularies" if found else "no vocabulary (vocab.yml or vocab.spm)"
        raise UserError(f"{path}: has {what} beside it; name source and target vocabulary in {DECODER}, under vocabs:")
    return found


def _tokens(path: Path) -> list[str]:
    """The tokens of a vocabulary, by id."""
    if path.suffix == ".spm":
        return _pieces(path)
    ids: dict[int, str] = {}
    for token, i, line in yaml_entries(path, _text(path)):
        if not isinstance(i, str) or not re.fullmatch("[0-9]{1,9}", i):
            raise UserError(f"{path}: line {line}: '{token[:40]}' has no id (token: 7)")
        ids[int(i)] = token
    if sorted(ids) != [*range(len(ids))] or not all(map(is_text, ids.values())):
        raise UserError(f"{path}: ids must be 0 to {len(ids) - 1}, each once, of texts; the file is damaged")
    return [ids[i] for i in range(len(ids))]


def _pieces(path: Path) -> list[str]:
    model = sentencepiece_model(path)
    return [model.id_to_piece(i) for i in range(model.get_piece_size())]


def yaml_entries(path: Path, text: str) -> list[YamlEntry]:
    """The entries of the object in a file, in order, also of keys that are repeated.

    Raises:
        UserError: the text is no YAML, or no such object; PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise UserError(f'{path}: .yml files need PyYAML: pip install "headwise[files]"') from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    hidden = text.translate(HIDDEN)
    if any(one in text for one in BREAKS):
        try:
            shown = {ord(HIDDEN[ord(one)]): one for one in BREAKS}
            return [*_entries(path, yaml.parse(hidden.translate(shown), loader))]
        except (yaml.YAMLError, UserError):
            pass  # they end no line
    try:
        return [*_entries(path, yaml.parse(hidden, loader))]
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"{path}: line {mark.line + 1}" if mark else str(path)
        what = getattr(error, "problem", None) or "a character that YAML forbids"
        raise UserError(f"{where}: invalid YAML ({what}); the file is damaged") from None


def _entries(path: Path, events: Iterator[Any]) -> Iterator[YamlEntry]:
    inside, key, values = "", None, None
    for event in events:
        kind, line = type(event).__name__.removesuffix("Event"), event.start_mark.line + 1
        if kind == "Scalar" and inside:
            word = event.value.translate(SHOWN)
            if values is not None:
                values.append(word)
            elif key is None:
                key = word
            else:
                yield key, word, line
                key = None
        elif kind == "MappingStart" and not inside:
            inside = "object"
        elif kind == "SequenceStart" and key is not None and values is None:
            values = []
        elif kind == "SequenceEnd" and values is not None and key is not None:
            yield key, values, line
            key, values = None, None
        elif kind not in ("StreamStart", "StreamEnd", "DocumentStart", "DocumentEnd", "MappingEnd"):
            raise UserError(f"{path}: line {line}: must be keys with a value each; the file is damaged")
