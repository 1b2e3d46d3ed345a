"""Models that have a name: those of the project's releases, and all that `headwise download` has fetched.

A name is read as a folder of `models_folder`, unless a folder of that name is where the program runs (`hub`).
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from headwise.runtime.checkpoint.layout import CONFIG

MODELS = "HEADWISE_MODELS"  # in the environment: the folder of downloaded models
ARGOS = "argos:"  # before a language pair: a package of Argos Translate
DOWNLOADED = re.compile(r"\w[\w.-]*(:[\w-]+)?")  # en-de, argos:en-de


@dataclass(frozen=True)
class Release:
    """A model that is attached to a release, as a zip archive with one model folder.

    Attributes:
        file: name of the archive.
        languages: for people.
        licence: that of the training data.
        built_by: the command that makes the archive, in a copy of the repository.
        instead: the command that gets a model for the same task until the release.
        size: bytes of the archive.
        sha256: its digest in hexadecimal; "": not released yet.
    """

    file: str
    languages: str
    licence: str
    built_by: str
    instead: str
    size: int = 0
    sha256: str = ""


RELEASES = {
    "en-de": Release(
        "headwise-en-de.zip",
        "English to German",
        "CC BY 2.0 FR",
        "make sentence-model",
        f"headwise download {ARGOS}en-de",
    ),
    "dates": Release(
        "headwise-dates.zip",
        "English dates to de, fr, es and ja",
        "Apache-2.0",
        "make course-models",
        "headwise demo",
    ),
}


def how_to_get(name: str) -> str:
    """The command that gets the model of this name, or what there is until it is released.

    >>> how_to_get("argos:en-de")
    'get the model of that name: headwise download argos:en-de'
    """
    one = RELEASES.get(name)
    if one and not one.sha256:
        return f"not released yet; until then: {one.instead} (or, in a copy of the repository: {one.built_by})"
    return f"get the model of that name: headwise download {name}"


def models_folder() -> Path:
    """The folder of downloaded models: `$HEADWISE_MODELS`, or where the system keeps data of the user."""
    if chosen := os.environ.get(MODELS):
        return Path(chosen)
    variable, usual = "XDG_DATA_HOME", "~/.local/share"
    if sys.platform == "win32":
        variable, usual = "LOCALAPPDATA", "~/AppData/Local"
    elif sys.platform == "darwin":
        usual = "~/Library/Application Support"
    return Path(os.environ.get(variable) or os.path.expanduser(usual)) / "headwise" / "models"


def folder_for(name: str) -> Path:
    """Where a downloaded model of this name is, or would be; a name of a file on Windows has no colon."""
    return models_folder() / name.replace(":", "-")


def downloaded(name: str) -> Path | None:
    """The folder of a downloaded model; None if there is none of this name."""
    if DOWNLOADED.fullmatch(name) and (folder_for(name) / CONFIG).is_file():
        return folder_for(name)
    return None


def can_be_downloaded(name: str) -> bool:
    """Whether `headwise download` knows this name."""
    return name in RELEASES or (name.startswith(ARGOS) and DOWNLOADED.fullmatch(name) is not None)
