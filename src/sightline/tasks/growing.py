"""A published model whose vocabulary gets more pieces before it is trained further (`--special TOKEN=COPY_OF`)."""

from dataclasses import replace
from pathlib import Path

from sightline.checkpoint.growing import write_grown
from sightline.checkpoint.layout import CONFIG, adapters_in, read_json
from sightline.checkpoint.vocabulary import read_vocabulary
from sightline.config.settings import RunConfig, check
from sightline.errors import UserError
from sightline.tasks.job import TrainRequest, say
from sightline.tasks.starting import starting


def with_pieces(request: TrainRequest) -> tuple[TrainRequest, RunConfig]:
    """The request with the model to start from in a folder of the run, where it has the pieces of `request.special`,
    and the configuration of that.

    There it stays: a run that goes on, and adapters, begin with it again.
    """
    base = Path(request.init)
    if adapters_in(base) or "family" in read_json(base / CONFIG):
        raise UserError(f"--special {request.special[0]}: {base} is no whole folder in the Hugging Face layout")
    out = Path(request.out) / f"{base.absolute().name}-grown"
    asked = [one.rpartition("=") if "=" in one.strip("=") else (one, "", "") for one in request.special]
    pieces = {piece: origin for piece, _, origin in asked}
    if request.resume and out.is_dir():
        _check(out, pieces)
    else:
        ids = write_grown(base, pieces, out)
        rows = ", ".join(f"{piece} ({ids[piece]}, begun as {pieces[piece] or 'the mean'})" for piece in pieces)
        say(request, f"added to the vocabulary: {rows}")
    request = replace(request, init=str(out), special=())
    return request, check(starting(request))


def _check(out: Path, pieces: dict[str, str]) -> None:
    vocabulary = read_vocabulary(out, read_json(out / CONFIG))
    for piece in pieces:
        if vocabulary.id_of(piece) is None:
            raise UserError(
                f"--special {piece}: the run in {out.parent} was begun without it; train into another folder"
            )
