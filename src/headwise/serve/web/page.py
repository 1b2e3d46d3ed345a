"""A model, its tokenizer, the library and the scripts as one HTML file that needs no network.

A content security policy allows only the page's own script and style, a worker made from a text in the page, and
WebAssembly. Model and library are in a text block, compressed and in base64. `assets/tokenizer.js` supports the BPE
tokenizers that `text/tokens/tokenizer.py` trains.

For the walks (`Model.walks`) the page gets the figure, and names and formulas of all steps, without numbers, which the
library in the browser computes (`assets/walking.js`). Python's walks need PyTorch; without it a page has no walks.
"""

import base64
import gzip
import html
import json
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, normalizers

from headwise.config.settings import RunConfig, SearchSettings
from headwise.errors import UserError
from headwise.evaluate.pages.document import asset, document, fill_template, script_text, tour_texts
from headwise.models.load import load
from headwise.models.translation.target_language import tagged_targets
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.sidecar_files import read_alignment
from headwise.runtime.checkpoint.writing import write_atomically
from headwise.runtime.native import library as c
from headwise.runtime.native.network import CompiledNetwork, head_columns
from headwise.runtime.native.search import options_of
from headwise.runtime.search.request import search_options
from headwise.serve.web.memory import Image, structure_layout, structure_values
from headwise.serve.web.wasm import wasm_builds
from headwise.text.tokens.tokenizer import Tokenizer, pre_tokenizer
from headwise.view.alignment import AlignmentHead, default_head
from headwise.view.page.walks import one_walk
from headwise.view.record import WalkRecord, WalkStep

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
# Settings of a BPE model besides vocabulary and merges: the defaults only.
PLAIN_BPE = {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
    "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
}  # fmt: skip


def export_page(folder: Folder, out: Path) -> str:
    """Write the page of a translation model to the file `out`, which must not exist; returns its size.

    A page is named like its file. It is not compared with the model here, because that needs a browser; tests do it.
    """

    def write(temporary: Path) -> str:
        check_page(folder)
        text = page_html(pack_page(folder), out.stem)
        (temporary / "export").write_text(text, encoding="utf-8")
        walk = "" if torch_installed() else "; without “Look inside”, which an export without PyTorch leaves out"
        return f"{len(text) / 1e6:.1f} MB; open it in a browser, or share it{walk}"

    return write_atomically(out, write)


def check_page(folder: Folder) -> None:
    """`UserError` for a model that the library does not support, or a tokenizer that the page does not."""
    if not isinstance(folder.config, RunConfig) or folder.config.model.task != "translate":
        raise UserError(f"{folder.path}: --to web is for models trained here; its tokenizer is not supported")
    if c.library() is None:
        raise UserError(f"--to web needs the compiled library, which {c.absence()}")
    if lacks := folder.stored.unsupported:
        raise UserError(f"{folder.path}: not supported by --to web, because of the compiled library ({lacks})")
    page_tokenizer(folder.tokenizer, str(folder.path))


def pack_page(folder: Folder) -> bytes:
    """The bytes that `unpacked` of assets/worker.js reads: a length, a JSON header, and binary parts."""
    config, tokenizer = folder.config.decode, folder.tokenizer
    max_len = folder.config.model.max_len if folder.config.model.positions == "learned" else 0
    lengths = page_lengths(config, max_len)
    network = folder.stored.engine("int8")
    image = Image(network, int(lengths["positions"]))
    parts, places, end = {**wasm_builds(), "image": bytes(image.bytes)}, {}, 0
    for name, content in parts.items():
        places[name] = (end, len(content))
        end += len(content)
    about = {
        "model": image.model,
        "pointers": image.pointers,
        "parts": places,
        "lengths": lengths,
        "layouts": {kind.__name__: structure_layout(kind) for kind in STRUCTURES},
        "aligns": page_alignment(network, folder.path),
        "walk": page_walks(folder.path),
        "targets": [f"<2{code}>" for code in tagged_targets(folder)],
        "tokenizer": page_tokenizer(tokenizer, str(folder.path)),
        **page_settings(config, tokenizer),
    }
    head = json.dumps(about, separators=(",", ":")).encode()
    whole = len(head).to_bytes(4, "little") + head + b"".join(parts.values())
    return gzip.compress(whole, GZIP_LEVEL, mtime=0)


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


def page_settings(config: SearchSettings, tokenizer: Tokenizer) -> dict[str, Any]:
    """The search settings of `headwise translate` for this model, with one output."""
    options, lists = options_of(search_options(config, tokenizer.special), False)
    options.pool = 1
    return {
        "options": structure_values(options),
        "lists": {name: ids.tolist() for name, ids in lists.items()},
    }


def page_alignment(network: CompiledNetwork, path: Path) -> dict[str, int]:
    """The attention for word alignment: the best one stored with the model, else the default."""
    known = read_alignment(path)
    head = AlignmentHead(**known) if known else default_head(network.heads["cross"])
    return {"layer": head.layer, "head": -1 if head.head is None else head.head, "later": int(head.row == "reads")}


def page_html(model: bytes, title: str) -> str:
    """The HTML."""
    parts = {
        "title": html.escape(title),
        "model": base64.b64encode(model).decode("ascii"),
        "worker": script_text("worker.js", read_asset),
        "tour": tour_texts(),
    }
    style = "".join(map(asset, STYLES)) + read_asset("page.css")
    allowed = ("script-src 'wasm-unsafe-eval'", "worker-src blob:")
    return document(
        title, style, fill_template(read_asset("page.html"), parts), script_text("main.js", read_asset), allowed
    )


def read_asset(name: str) -> str:
    """A file of `assets/`, or of the shared assets of reports."""
    own = resources.files("headwise.serve.web").joinpath("assets", name)
    return own.read_text(encoding="utf-8") if own.is_file() else asset(name)


def page_tokenizer(tokenizer: Tokenizer, origin: str) -> dict[str, Any]:
    """`Content` of assets/tokenizer.js; `UserError` naming the first unsupported part."""
    content = json.loads(tokenizer.backend.to_str())
    foreign = unsupported_part(content)
    if foreign:
        raise UserError(f"{origin}: --to web does not support this tokenizer: {foreign}")
    steps = [step["type"] for step in content["normalizer"]["normalizers"]]
    added = content["added_tokens"]
    return {
        "forms": [FORMS[step] for step in steps if step in FORMS],
        "lowercase": "Lowercase" in steps,
        "pieces": [tokenizer.piece(i) for i in range(tokenizer.vocab_size)],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]],
        "special": [token["id"] for token in added if token["special"]],
        "declared": {str(i): text for i, text in tokenizer.declared.items()},
    }


def unsupported_part(content: dict[str, Any]) -> str:
    """The first unsupported part of a `tokenizer.json`, as the end of a sentence; "" if there is none."""
    ours = tokenizers.Tokenizer(tokenizers.models.BPE())
    ours.pre_tokenizer = pre_tokenizer()
    ours.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    ours.normalizer = normalizers.Sequence([normalizers.Prepend(" ")])
    known = json.loads(ours.to_str())
    model = {name: value for name, value in content["model"].items() if name not in ("vocab", "merges")}
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, not BPE (data.subword = 'bpe')"
    strange = [name for name, value in model.items() if value != PLAIN_BPE.get(name, value)]
    if strange:
        return f"its BPE model has {strange[0]} = {model[strange[0]]!r}"
    for part in ("pre_tokenizer", "decoder", "post_processor"):
        if content[part] != known[part]:
            return f"its {part} is not one of `headwise train`"
    return _foreign_step(content["normalizer"] or {}, known["normalizer"]) or _foreign_token(content["added_tokens"])


def _foreign_step(found: dict[str, Any], known: dict[str, Any]) -> str:
    steps: list[dict[str, Any]] = found.get("normalizers") or []
    types = [step["type"] for step in steps[:-1]]
    ordered = [step for step in (*FORMS, "Lowercase") if step in types]
    if steps[-1:] != known["normalizers"] or types != ordered:
        return "its normalizer is not one of `headwise train`"
    return ""


def _foreign_token(added: list[dict[str, Any]]) -> str:
    for token in added:
        strange = [name for name in ("single_word", "lstrip", "rstrip", "normalized") if token[name]]
        if strange:
            return f"its token {token['content']} is {strange[0]}"
    return ""


def page_walks(path: Path) -> dict[str, Any] | None:
    """`about.walk` of assets/walking.js for the model at `path`; None without PyTorch.

    The text does not matter, because names and formulas are the same for all.
    """
    return outline(load(path, "cpu").walks("a", tgt="a")) if torch_installed() else None


def torch_installed() -> bool:
    """Whether PyTorch can be imported."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:
        return False


def outline(record: WalkRecord) -> dict[str, Any]:
    """The figure, the kinds of steps, and the steps of each stack and layer.

    `columns` are the components of a head among the padded ones in memory, `rates` those of rotary positions, and
    `outputs` is the number of tokens shown at the output.
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
    rotated = steps.get("self_attn.rotated-keys")
    rates = [] if rotated is None or rotated.weight is None else rotated.weight.tolist()
    width, parts = steps["self_attn.keys"].values.shape[1], [len(rates)] * 2 if rates else []
    columns = {"self": head_columns(width, *parts), "cross": head_columns(width)}
    columns["values"] = head_columns(steps["self_attn.values"].values.shape[1])
    found = {"figure": figure, "kinds": [json.loads(kind) for kind in kinds], "walks": walks}
    return {**found, "columns": columns, "rates": rates, "outputs": n_outputs}


def _step(step: dict[str, Any], numbers: list[int]) -> list[int | bool]:
    """The number of the kind, and whether a step has a layer, a head and a bias."""
    return [numbers[step["kind"]], *(step[name] is not None for name in ("layer", "head", "bias"))]
