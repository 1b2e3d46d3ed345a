"""Models, their tokenizers, the library and the scripts as one HTML file that needs no network.

A content security policy allows only the page's own script and style, a worker made from a text in the page, and
WebAssembly. The library and each model are text blocks, compressed and in base64. `assets/tokenizer.js` supports the
BPE tokenizers that `headwise train` trains, and for language models its characters.

For the walks (`Model.walks`) the page gets the figure, and names and formulas of all steps, without numbers, which the
library in the browser computes (`assets/walking.js`). Python's walks need PyTorch; without it a page has no walks.
"""

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwise.config.data import TextData, TranslationData
from headwise.config.network import NetworkConfig
from headwise.config.settings import RunConfig, SearchSettings
from headwise.contract import SearchOptions
from headwise.errors import UserError
from headwise.evaluate.logs import VALIDATION_LOG, read_log
from headwise.evaluate.pages.document import asset, catalogues, document, fill_template, interface_parts, script_text
from headwise.models.kinds import kind_of
from headwise.models.language.language_model import without_start
from headwise.models.load import load
from headwise.models.translation.target_language import tagged_targets
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.generation_config import FILE, read_generation_config
from headwise.runtime.checkpoint.sidecar_files import read_alignment
from headwise.runtime.checkpoint.writing import write_atomically
from headwise.runtime.native import library as c
from headwise.runtime.native.network import head_columns
from headwise.runtime.native.search import options_of
from headwise.runtime.search.request import search_options
from headwise.serve.web.memory import Image, structure_layout, structure_values
from headwise.serve.web.wasm import wasm_builds
from headwise.text.files.documents import train_on_documents
from headwise.text.prepared.example import example_source
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.page.walks import one_walk
from headwise.view.record import ROWS, WalkRecord, WalkStep

STYLES = ("paper.css", "scale.css", "columns.css", "walk.css", "tour.css")
STRUCTURES = (
    c.Transformer,
    c.Layer,
    c.Linear,
    c.Recording,
    c.Options,
    c.Limits,
    c.Members,
    c.Found,
)  # that scripts use
GZIP_LEVEL = 6  # compression level
FORMS = {"NFC": "NFC", "NFKC": "NFKC"}  # names in the library and in JavaScript
FOREIGN = "--to web is for models trained here; its tokenizer is not supported"
LONGEST = 1024  # tokens that a language model without a limit reads in a page
SMALLEST = 300  # tokens: more than bytes and special tokens


def export_page(folders: Sequence[Folder], out: Path) -> str:
    """Write the page of models that translate or continue texts to `out`, which must not exist; returns its size.

    A page is named like its file, and its models like their folders. It is not compared with them here, because that
    needs a browser; tests do it.

    Raises:
        UserError: a model is not supported, or two have one name.
    """
    names = [folder.path.resolve().name for folder in folders]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UserError(f"two models are named {twice}, and the page could not tell them apart: rename a folder")

    def write(draft: Path) -> str:
        for folder in folders:
            check_page(folder)
        models = {name: pack_model(folder) for name, folder in zip(names, folders, strict=True)}
        text = page_html(models, out.stem)
        draft.write_text(text, encoding="utf-8")
        walk = "" if torch_installed() else "; without “Look inside”, which an export without PyTorch leaves out"
        return f"{len(text) / 1e6:.1f} MB; open it in a browser, or share it{walk}"

    return write_atomically(out, write)


def continues(folder: Folder) -> bool:
    """Whether it is a language model: a decoder alone."""
    return isinstance(folder.config, NetworkConfig) and kind_of(folder.config) == "language"


def check_page(folder: Folder) -> None:
    """`UserError` for a model that the library does not support, or a tokenizer that the page does not."""
    if not continues(folder) and not isinstance(folder.config, RunConfig):
        raise UserError(f"{folder.path}: {FOREIGN}")
    if c.library() is None:
        raise UserError(f"--to web needs the compiled library, which {c.absence()}")
    if lacks := folder.stored.unsupported:
        raise UserError(f"{folder.path}: not supported by --to web, because of the compiled library ({lacks})")
    if continues(folder):
        generation = read_generation_config(folder.path, folder.about, has_encoder=False)
        if generation.settings.repetition_penalty != 1 or generation.special.sequence_bias:
            name = "sequence_bias or bad_words_ids" if generation.special.sequence_bias else "repetition_penalty"
            raise UserError(f"{folder.path / FILE}: --to web does not support {name}; remove it")
    page_tokenizer(tokenizer_of(folder), str(folder.path), continues(folder))


def tokenizer_of(folder: Folder) -> Tokenizer:
    """The tokenizer of a model trained here; `UserError` for a language model that has another."""
    if not continues(folder):
        return folder.tokenizer
    try:
        return Tokenizer.load(folder.path / "tokenizer.json")
    except UserError as error:
        raise UserError(f"{folder.path}: {FOREIGN}") from error


def pack_library() -> bytes:
    """The library for all models of a page, with the structures that scripts use."""
    return _packed({"layouts": {kind.__name__: structure_layout(kind) for kind in STRUCTURES}}, wasm_builds())


def pack_model(folder: Folder) -> bytes:
    """A model, with its tokenizer and settings."""
    tokenizer, alone = tokenizer_of(folder), continues(folder)
    lengths, settings = _of_language_model(folder) if alone else _of_translator(folder)
    network = folder.stored.engine("int8")
    image = Image(network, int(lengths["positions"]))
    about = {
        "model": image.model,
        "pointers": image.pointers,
        "lengths": lengths,
        "continues": alone,
        "aligns": None if alone else page_alignment(folder.path),
        "walk": page_walks(folder.path, alone),
        "example": page_example(folder),
        "targets": [] if alone else [f"<2{code}>" for code in tagged_targets(folder)],
        "tokenizer": page_tokenizer(tokenizer, str(folder.path), alone),
        **settings,
    }
    return _packed(about, {"image": bytes(image.bytes)})


def _packed(about: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """The bytes that `unpacked` of assets/worker.js reads: a length, a JSON header, and binary parts."""
    places, end = {}, 0
    for name, content in parts.items():
        places[name] = (end, len(content))
        end += len(content)
    head = json.dumps({**about, "parts": places}, separators=(",", ":")).encode()
    whole = len(head).to_bytes(4, "little") + head + b"".join(parts.values())
    return gzip.compress(whole, GZIP_LEVEL, mtime=0)


def _of_translator(folder: Folder) -> tuple[dict[str, int | float], dict[str, Any]]:
    """Lengths, and the settings of `headwise translate`."""
    config = folder.config.decode
    max_len = folder.config.model.max_len if folder.config.model.positions == "learned" else 0
    return page_lengths(config, max_len), page_settings(search_options(config, folder.tokenizer.special))


def _of_language_model(folder: Folder) -> tuple[dict[str, int | float], dict[str, Any]]:
    """Lengths, and the settings of `headwise generate`."""
    generation = read_generation_config(folder.path, folder.about, has_encoder=False)
    longest, settings = folder.config.decoder.longest or LONGEST, generation.settings
    options = without_start(search_options(settings, generation.special))
    lengths = {
        "longest_source": longest,
        "positions": longest,
        "most": settings.max_length_extra,
        "least": settings.min_length_extra if generation.can_end else 0,
    }
    sampling = {"sample": settings.sample, "start": generation.special.bos_id}
    return lengths, page_settings(options) | sampling


def page_lengths(config: SearchSettings, max_len: int) -> dict[str, int | float]:
    """Maximum lengths of sources and outputs, and the number of position encodings."""
    longest = min(config.max_source_length, max_len or config.max_source_length)
    written = int(config.max_length_factor * longest) + config.max_length_extra
    return {
        "longest_source": longest,
        "positions": max(longest, min(written, max_len or written)),
        "max_len": max_len,
        "factor": config.max_length_factor,
        "extra": config.max_length_extra,
        "least_factor": config.min_length_factor,
    }


def page_settings(search: SearchOptions) -> dict[str, Any]:
    """The options of the C library, with one output."""
    options, lists = options_of(search, False)
    options.pool = 1
    return {
        "options": structure_values(options),
        "lists": {name: ids.tolist() for name, ids in lists.items()},
    }


def page_alignment(path: Path) -> dict[str, int | None] | None:
    """The stored attention for word alignment; None: the page chooses the clearest head for each pair."""
    known = read_alignment(path)
    return known and {"layer": known["layer"], "head": known["head"], "later": ROWS.index(known["row"])}


def page_example(folder: Folder) -> str:
    """A text that the model was validated on: of the data, if they are on this machine, or of the log; "" without."""
    if found := example_source(folder.about):
        return found
    samples = (record.get("sample") for record in read_log(folder.path / VALIDATION_LOG))
    sources = [sample["source"] for sample in samples if isinstance(sample, Mapping)]
    return str(sources[-1]) if sources else ""


def page_html(models: Mapping[str, bytes], title: str) -> str:
    """The HTML of packed models by name."""
    parts = {
        **interface_parts(),
        "title": html.escape(title),
        "library": base64.b64encode(pack_library()).decode("ascii"),
        "models": "\n".join(_model_block(name, packed) for name, packed in models.items()),
        "worker": script_text("worker.js", read_asset),
        "tour": catalogues("tour"),
    }
    style = "".join(map(asset, STYLES)) + read_asset("page.css")
    allowed = ("script-src 'wasm-unsafe-eval'", "worker-src blob:")
    return document(
        title, style, fill_template(read_asset("page.html"), parts), script_text("main.js", read_asset), allowed
    )


def _model_block(name: str, packed: bytes) -> str:
    text = base64.b64encode(packed).decode("ascii")
    return f'<script class="model" type="text/plain" data-name="{html.escape(name)}">{text}</script>'


def read_asset(name: str) -> str:
    """A file of `assets/`, or of the shared assets of reports."""
    own = resources.files("headwise.serve.web").joinpath("assets", name)
    return own.read_text(encoding="utf-8") if own.is_file() else asset(name)


def page_tokenizer(tokenizer: Tokenizer, origin: str, alone: bool = False) -> dict[str, Any]:
    """`Content` of assets/tokenizer.js, `alone` for a language model; `UserError` naming the first unsupported part."""
    content = json.loads(tokenizer.backend.to_str())
    foreign = unsupported_part(content, alone)
    if foreign:
        raise UserError(f"{origin}: --to web does not support this tokenizer: {foreign}")
    steps = [step["type"] for step in content["normalizer"]["normalizers"]]
    added, characters = content["added_tokens"], content["model"]["type"] == "WordLevel"
    merges = [] if characters else content["model"]["merges"]
    return {
        "forms": [FORMS[step] for step in steps if step in FORMS],
        "lowercase": "Lowercase" in steps,
        "front": "" if alone else " ",
        "unknown": tokenizer.unk_id if characters else None,
        "pieces": [tokenizer.piece(i) for i in range(tokenizer.vocab_size)],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "special": [token["id"] for token in added if token["special"]],
        "declared": {str(token["id"]): token["content"] for token in added if not token["special"]},
    }


def unsupported_part(content: dict[str, Any], alone: bool = False) -> str:
    """The first unsupported part of a `tokenizer.json`, as the end of a sentence; "" if there is none.

    Supported are tokenizers of translators trained here or, with `alone`, those of language models.
    """
    kind = content["model"].get("type")
    characters = alone and kind == "WordLevel"
    if kind != "BPE" and not characters:
        return f"its model is {kind}, not BPE (data.subword = 'bpe')"
    if alone:
        subword = "characters" if characters else "bpe"
        made = train_on_documents([], TextData(subword=subword, vocab_size=SMALLEST, normalization="none"))
    else:
        made = Tokenizer.train([], TranslationData(vocab_size=SMALLEST, normalization="none"))
    known = json.loads(made.backend.to_str())
    model = {name: value for name, value in content["model"].items() if name not in ("vocab", "merges")}
    strange = [name for name, value in model.items() if value != known["model"].get(name, value)]
    if strange:
        return f"its {kind} model has {strange[0]} = {model[strange[0]]!r}"
    for part in ("pre_tokenizer", "decoder", "post_processor"):
        if content[part] != known[part]:
            return f"its {part} is not one of `headwise train`"
    steps = known["normalizer"]["normalizers"]
    return _foreign_step(content["normalizer"] or {}, steps) or _foreign_token(content["added_tokens"])


def _foreign_step(found: dict[str, Any], last: Sequence[Any]) -> str:
    steps: list[dict[str, Any]] = found.get("normalizers") or []
    first = steps[: len(steps) - len(last)]
    types = [step["type"] for step in first]
    ordered = [step for step in (*FORMS, "Lowercase") if step in types]
    if "normalizers" not in found or steps[len(first) :] != last or types != ordered:
        return "its normalizer is not one of `headwise train`"
    return ""


def _foreign_token(added: list[dict[str, Any]]) -> str:
    for token in added:
        strange = [name for name in ("single_word", "lstrip", "rstrip", "normalized") if token[name]]
        if strange:
            return f"its token {token['content']} is {strange[0]}"
    return ""


def page_walks(path: Path, alone: bool = False) -> dict[str, Any] | None:
    """`about.walk` of assets/walking.js for the model at `path`, `alone` for a language model; None without PyTorch.

    The text does not matter, because names and formulas are the same for all.
    """
    if not torch_installed():
        return None
    model = load(path, "cpu")
    return outline(model.walks("a") if alone else model.walks("a", tgt="a"))


def torch_installed() -> bool:
    """Whether PyTorch can be imported."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


def outline(record: WalkRecord) -> dict[str, Any]:
    """The figure, the kinds of steps, and the steps of each stack and layer.

    `columns` are the components of a head among the padded ones in memory, `rates` those of rotary positions, and
    `outputs` is the number of tokens shown at the output, `candidates` that of each row's most probable ones.
    """
    kinds: dict[str, int] = {}
    walks: dict[str, list[list[list[int | bool]]]] = {}
    figure, n_outputs, steps = {}, 0, dict[str, WalkStep]()
    for stack, about in record.figure.items():
        walks[stack] = []
        for layer in range(len(about.heads)):
            walk = one_walk(record, stack, layer, 0)
            figure, n_outputs = walk["figure"], len(walk["axes"].get("vocabulary", ()))
            numbers = [kinds.setdefault(json.dumps(kind), len(kinds)) for kind in walk["kinds"]]
            walks[stack].append([_step(one, numbers) for one in walk["steps"]])
        steps |= {step.id: step for step in record.steps(stack, 0, 0)}
    predictions = [one for step in steps.values() for one in step.predictions]
    n_candidates = max((len(one.candidates) for one in predictions), default=0)
    rotated = steps.get("self_attn.rotated-keys")
    rates = [] if rotated is None or rotated.weight is None else rotated.weight.tolist()
    width, parts = steps["self_attn.keys"].values.shape[1], [len(rates)] * 2 if rates else []
    columns = {"self": head_columns(width, *parts), "cross": head_columns(width)}
    columns["values"] = head_columns(steps["self_attn.values"].values.shape[1])
    found = {"figure": figure, "kinds": [json.loads(kind) for kind in kinds], "walks": walks}
    return {**found, "columns": columns, "rates": rates, "outputs": n_outputs, "candidates": n_candidates}


def _step(step: dict[str, Any], numbers: list[int]) -> list[int | bool]:
    """The number of the kind, and whether a step has a layer, a head and a bias."""
    return [numbers[step["kind"]], *(step[name] is not None for name in ("layer", "head", "bias"))]
