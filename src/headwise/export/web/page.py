"""A model, its tokenizer, the library and the scripts as one HTML file that needs no network.

A content security policy allows only the page's own script and style, a worker made from a text in the page, and
WebAssembly. Model and library are in a text block, compressed and in base64.
"""

import base64
import gzip
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.sidecar_files import read_alignment
from headwise.config.settings import RunConfig, SearchSettings
from headwise.contract import SpecialIds
from headwise.data.tokenizer import Tokenizer
from headwise.decode.request import search_options
from headwise.errors import UserError
from headwise.export.web.memory import Image, structure_layout, structure_values
from headwise.export.web.tokens import page_tokenizer
from headwise.export.web.walks import page_walks, torch_installed
from headwise.export.web.wasm import wasm_builds
from headwise.export.writing import write_atomically
from headwise.inspect.alignment import AlignmentHead, default_head
from headwise.native import library as c
from headwise.native.network import CompiledNetwork
from headwise.native.settings import options_of
from headwise.report.document import asset, document, fill_template, script_text

STYLES = ("paper.css", "scale.css", "columns.css", "walk.css")
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
    if lacks := folder.weights.unsupported:
        raise UserError(f"{folder.path}: not supported by --to web, because of the compiled library ({lacks})")
    page_tokenizer(folder.tokenizer, str(folder.path))


def pack_page(folder: Folder) -> bytes:
    """What `unpacked` of assets/worker.js reads: a length, a JSON header, and binary parts."""
    config, tokenizer = folder.config.decode, folder.tokenizer
    max_len = folder.config.model.max_len if folder.config.model.positions == "learned" else 0
    lengths = page_lengths(config, max_len)
    network = folder.weights.engine("int8")
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
    special = SpecialIds(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    options, ids = options_of(search_options(config, special), False)
    options.pool = 1
    names = ("ends", "suppressed", "suppressed_first")
    return {
        "options": structure_values(options),
        "lists": {name: list.tolist() for name, list in zip(names, ids, strict=True)},
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
    }
    style = "".join(map(asset, STYLES)) + read_asset("page.css")
    allowed = ("script-src 'wasm-unsafe-eval'", "worker-src blob:")
    return document(
        title, style, fill_template(read_asset("page.html"), parts), script_text("main.js", read_asset), allowed
    )


def read_asset(name: str) -> str:
    """A file of `assets/`, or of the shared assets of reports."""
    own = resources.files("headwise.export.web").joinpath("assets", name)
    return own.read_text(encoding="utf-8") if own.is_file() else asset(name)
