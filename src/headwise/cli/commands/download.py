"""Example: headwise download en-de"""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

from headwise.errors import UserError, unknown
from headwise.importing import torch_needed
from headwise.runtime.checkpoint.downloads import download, unpack_model
from headwise.runtime.checkpoint.hub import FETCH, folder_of
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.checkpoint.model_card import headwise_command
from headwise.runtime.checkpoint.releases import (
    ARGOS,
    RELEASES,
    can_be_downloaded,
    downloaded,
    folder_for,
    how_to_get,
    models_folder,
)
from headwise.runtime.checkpoint.writing import write_atomically

# The addresses, and the variables that replace them; the second is Argos Translate's own.
FILES = "HEADWISE_DOWNLOADS", "https://github.com/headwise/headwise/releases/download/v0.2.0"
ARGOS_INDEX = "ARGOS_PACKAGE_INDEX", "https://raw.githubusercontent.com/argosopentech/argospm-index/main"
OTHERS = f"""
{ARGOS}FROM-TO    a package of Argos Translate, such as {ARGOS}en-de; PyTorch converts it
{FETCH}OWNER/NAME    a model of the Hugging Face Hub, such as {FETCH}Helsinki-NLP/opus-mt-en-de
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    name = f"model of the list, {ARGOS}FROM-TO for a package of Argos Translate, or {FETCH}OWNER/NAME for a model of "
    name += "the Hugging Face Hub (default: print the list)"
    parser.add_argument("name", nargs="?", metavar="NAME", help=name)
    out = "new folder to write (default: one for the user, which the list names; every command finds NAME there)"
    parser.add_argument("out", nargs="?", default="", metavar="OUT", help=out)


def run(options: argparse.Namespace) -> None:
    """Print what can be downloaded, or download a model and say how to use it."""
    name = options.name
    if not name:
        print("\n".join(_rows()))
    elif name.startswith(FETCH):
        if options.out:
            raise UserError(f"{name}: stays in the hub's cache; to copy it, use: headwise import {name} {options.out}")
        _report(name, folder_of(name), name.removeprefix(FETCH))
    elif not can_be_downloaded(name):
        raise unknown("model", name, [*RELEASES, f"{ARGOS}FROM-TO", f"{FETCH}OWNER/NAME"])
    elif not options.out and (folder := downloaded(name)):
        print(f"{name}: is in {folder} already; delete that folder to download it again", file=sys.stderr)
    else:
        folder = Path(options.out) if options.out else folder_for(name)
        (_argos_package if name.startswith(ARGOS) else _release)(name, folder)
        _report(name, folder, str(folder) if options.out else name)


def _rows() -> list[str]:
    """A line for each model of the releases, and what else there is."""
    rows = [f"{'name':<8}{'languages':<36}{'licence':<14}MB"]
    for name, one in RELEASES.items():
        state = f"{one.size / 1e6:.1f}" if one.sha256 else f"not released yet; until then: {one.instead}"
        state = "downloaded" if downloaded(name) else state
        rows.append(f"{name:<8}{one.languages:<36}{one.licence:<14}{state}")
    there = sorted(path.parent.name for path in models_folder().glob(f"[!.]*/{CONFIG}"))
    return [*rows, OTHERS, f"Downloaded to {models_folder()}: {', '.join(there) or 'nothing'}"]


def _report(name: str, folder: Path, model: str) -> None:
    print(f"{name}: {folder}\nNext: {headwise_command()} info {shlex.quote(model)}", file=sys.stderr)


def _release(name: str, folder: Path) -> None:
    one = RELEASES[name]
    if not one.sha256:
        raise UserError(f"{name}: {how_to_get(name)}")
    variable, usual = FILES

    def fetch(draft: Path) -> None:
        archive = draft.with_name(one.file)
        address = f"{(os.environ.get(variable) or usual).rstrip('/')}/{one.file}"
        download(address, archive, one.size, one.sha256, f"set {variable} to the address of a mirror")
        unpack_model(archive, draft.with_name("unpacked")).rename(draft)

    write_atomically(folder, fetch)
    print(f"Licence of its training data: {one.licence}", file=sys.stderr)


def _argos_package(name: str, folder: Path) -> None:
    with torch_needed(f"headwise download {name}"):
        from headwise.pytorch.checkpoint.argos import open_argos
        from headwise.pytorch.checkpoint.imported import write_foreign

    variable, usual = ARGOS_INDEX
    otherwise = f"set {variable} to the address of a mirror; a package that you copied by hand can be imported: "
    otherwise += f"{headwise_command()} import FILE.argosmodel OUT"

    def fetch(draft: Path) -> None:
        index = f"{(os.environ.get(variable) or usual).rstrip('/')}/index.json"
        listed = draft.with_name("index.json")
        download(index, listed, otherwise=otherwise)
        address = _newest(index, listed.read_bytes(), name.removeprefix(ARGOS))
        package = draft.with_name("package.argosmodel")
        download(address, package, otherwise=otherwise)
        with open_argos(package) as model:
            write_foreign(draft, model)

    write_atomically(folder, fetch)


def _newest(index: str, content: bytes, pair: str) -> str:
    """The address of the newest package for a language pair, encrypted unless the index is not."""
    schemes = "https:", index.partition("/")[0]
    try:
        packages = json.loads(content)
        found: dict[str, tuple[list[int], str]] = {}
        for one in packages:
            links = [link for link in one.get("links", ()) if link.startswith(schemes)]
            version = [int(part) for part in one["package_version"].split(".")]
            key = f"{one['from_code']}-{one['to_code']}"
            if links and (key not in found or version > found[key][0]):
                found[key] = version, links[0]
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise UserError(f"{index}: is not an index of Argos Translate ({type(error).__name__}: {error})") from None
    if pair not in found:
        near = [other for other in found if {*pair.split("-")} & {*other.split("-")}]
        raise unknown("language pair of Argos Translate", pair, near or found)
    return found[pair][1]
