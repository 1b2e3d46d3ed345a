"""Pack the weights of a translation model for the compiled library, ahead of time (`packed`)."""

from pathlib import Path

from headwise.config.settings import RunConfig
from headwise.errors import UserError
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.packed import write_packed
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.native.library import absence, library
from headwise.runtime.native.linear import NUMBERS


def pack_model(folder: str | Path, compute: str = "") -> Path:
    """Pack a translation model, trained here or pretrained; returns the file, which is beside the weights.

    Args:
        folder: the model folder.
        compute: precision, one of `runtime.native.linear.NUMBERS`; "": that in which the model decodes.

    Raises:
        UserError: there is no such model, or the compiled library does not support its network or this precision.
    """
    if library() is None:
        raise UserError(f"{folder}: is packed by the compiled library, which {absence()}")

    unsupported = f"{folder}: torch computes with this network, and nothing is packed for it; use it as it is"
    found = read_folder(folder, dtype="auto", tasks=("translate",), unsupported=unsupported)
    own = found.config.decode.compute if isinstance(found.config, RunConfig) else "auto"
    compute = compute or (NUMBERS[0] if own == "auto" else own)
    if compute not in NUMBERS:
        raise UserError(f"{folder}: decodes in {compute}, which is not packed; choose --compute {' or '.join(NUMBERS)}")
    parameters = found.stored.parameters
    if not parameters.axes.decoder:
        raise UserError(
            f"{folder}: an encoder is packed whenever it is loaded, and needs no file for it; use it as it is"
        )
    states = parameters.states()
    path = write_packed(found.path, parameters.axes, parameters.arrays, compute, parameters.digest, states)
    seal(found.path)  # a folder of an older version: without the listed digest each start would hash the weights
    return path
