"""`export --to hf` of a family's folder, one that `sightline import` wrote or another: the way back, tensor by tensor.

Not here: models that `sightline train` made (`hf`).
"""

from pathlib import Path

import torch

from sightline.checkpoint.folder import copy_companions, read_family
from sightline.checkpoint.layout import CONFIG, read_json
from sightline.checkpoint.published import read_checkpoint
from sightline.checkpoint.write import write_checkpoint
from sightline.errors import UserError

CONVERTERS = {
    "ctranslate2": "ct2-transformers-converter --model FOLDER --output_dir OUT",
    "onnx": "optimum-cli export onnx --model FOLDER OUT",
}


def check(model: Path, to: str) -> None:
    """`UserError` with the command that does it, for formats that only our own models are written in."""
    if to == "hf":
        return
    values = read_json(model / CONFIG)
    kind = values["family"]["family"] if "family" in values else values.get("model_type")
    raise UserError(
        f"{model}: is a checkpoint of a family ({kind}), and this needs a model that `sightline train` made; "
        f"`{CONVERTERS[to]}` takes such a folder, where it was imported after `sightline export --to hf`"
    )


def write_back(model: Path, folder: Path) -> str:
    """Write the layout of transformers into `folder`, read it again and compare; what was compared, one line."""
    found = read_family(model, torch.device("cpu"))
    write_checkpoint(folder, found.network, found.config, found.hf_config)
    copy_companions(model, folder)
    again = read_checkpoint(folder)
    kept = dict(again.network.named_parameters())
    own = dict(found.network.named_parameters())
    if again.config != found.config or not all(torch.equal(kept[name], own[name]) for name in own):
        raise UserError(f"{model}: was read back otherwise than it was written. Please report this mistake")
    return f"{len(own)} tensors are the same when read back"
