"""Several published models that write one text: at every step their log-probabilities are averaged.

Not here: the averaging itself (`native/search.c`, and with torch `decode.ensemble`), and models that Sightline has
trained (`sightline.models.ensemble`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import torch

from sightline.checkpoint.vocabulary import fingerprint
from sightline.decode.ensemble import AveragedNetworks
from sightline.errors import UserError
from sightline.models.rewriting import RewritingModel
from sightline.network import compiled


@dataclass(frozen=True)
class RewritingEnsemble(RewritingModel):
    """The first of `models`, writing with all of them; settings and languages are its own.

    What is about one network, such as its attention or how probable it finds a text, is to be asked one of `models`.
    """

    models: tuple[RewritingModel, ...] = ()

    @cached_property
    def forms(self) -> Callable[[str], Any]:  # pyright: ignore[reportIncompatibleVariableOverride] of several networks
        """The networks in the form to decode with, as one: in the compiled library where it has them all."""

        def form(compute: str) -> Any:
            forms = [model.forms(compute) for model in self.models]
            pairs = zip(forms, self.models, strict=True)
            of_torch: list[Any] = [
                form if isinstance(form, torch.nn.Module) else model.network for form, model in pairs
            ]
            return compiled.together(forms) or AveragedNetworks(of_torch)

        return form

    @property
    def compiled(self) -> bool:
        """Whether the compiled library decodes it."""
        return all(model.compiled for model in self.models)

    @cached_property
    def max_len(self) -> int | None:
        """The longest output that all can write, where one has a limit."""
        return min((model.max_len for model in self.models if model.max_len), default=None)

    @property
    def _translator(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise UserError("several published models only write together: ask one of them, and leave out --ensemble")


def together(models: Sequence[Any]) -> RewritingEnsemble:
    """Models as one; `UserError` for one whose pieces or marks are not those of the first, or that is not published."""
    first, *others = models
    for model in models:
        if not isinstance(model, RewritingModel):
            raise UserError(f"{model.path}: what writes together is all published or all made by `sightline train`")
        if not model.compiled and (numbers := next(model.network.parameters()).dtype) != torch.float32:
            raise UserError(f"{model.path}: is loaded in {numbers}; what torch lets write together is in float32")
    for model in others:
        if _marks(model) != _marks(first):
            raise UserError(f"{model.path}: has another vocabulary than {first.path}; what writes together shares one")
    return RewritingEnsemble(
        first.network, first.config, first.hf_config, first.path, first.device, models=tuple(models)
    )


def _marks(model: RewritingModel) -> tuple[Any, ...]:
    """What models that write together have in common."""
    size = model.config.tgt_vocab_size or model.config.vocab_size
    return fingerprint(model.path), size, model.generation.start_id, model.generation.end_ids
