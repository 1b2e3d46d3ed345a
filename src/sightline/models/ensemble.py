"""Several translation models that write one translation: model directories of one tokenizer, of any architectures."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sightline.checkpoint.trained import TOKENIZER
from sightline.config.settings import SearchSettings
from sightline.contract import EncoderDecoder, OwnSearch
from sightline.decode.translator import Translator
from sightline.errors import UserError
from sightline.models.model import Unable
from sightline.models.translation import TranslationVerbs
from sightline.native.network import CompiledEnsemble, CompiledNetwork

if TYPE_CHECKING:
    from sightline.models.translator import TrainedTranslator


class Ensemble(TranslationVerbs):
    """Models whose log-probabilities are averaged at every step of one search; made by `sightline.load([a, b])`.

    Decoding settings and the shortlist are those of the first; else the order of the models changes no more than
    rounding. What is about one network, such as its attention, is to be asked one of `models`.
    """

    def __init__(self, models: "Sequence[TrainedTranslator]") -> None:
        """`UserError` for a model whose pieces are not those of the first."""
        first, *others = models
        for model in others:
            if model.tokenizer.fingerprint != first.tokenizer.fingerprint:
                raise UserError(
                    f"{model.path}: has another tokenizer than {first.path}, and models that translate together share "
                    f"one: train them with --set data.tokenizer={first.path / TOKENIZER}"
                )
        self.models = tuple(models)
        translators = [model._translator for model in models]  # not through `self`: without a cycle `del` frees it
        own = translators[0]
        limits = [each.max_len for each in translators if each.max_len]
        translator = Translator(
            lambda: _members([each.model for each in translators]),
            own.tokenizer,
            own.config,
            min(limits, default=None),
            partial(_form, translators),
            own.shortlist,
        )
        paths = [model.path for model in models]
        super().__init__(translator, paths, first._device, all(model._for_library for model in models))

    @property
    def _changed(self) -> bool:
        return any(model._changed for model in self.models)

    def __getattr__(self, name: str) -> Any:
        raise Unable(f"an ensemble has no '{name}': ask one of its `models`")


def _form(translators: Sequence[Translator], compute: str) -> EncoderDecoder | OwnSearch:
    """The compiled library, where it has all models; else torch has all of them, rounded alike in bfloat16."""
    forms: list[Any] = [each.form(SearchSettings(compute=compute)) for each in translators]
    if all(isinstance(form, CompiledNetwork) for form in forms):
        return CompiledEnsemble(tuple(forms))
    from sightline.network.prepared import rounded  # needs torch

    in_torch: Any = rounded if compute == "bfloat16" else lambda model: model
    pairs = zip(forms, translators, strict=True)
    return _members([in_torch(each.model) if isinstance(form, CompiledNetwork) else form for form, each in pairs])


def _members(models: Sequence[Any]) -> EncoderDecoder:
    from sightline.decode.ensemble import AveragedNetworks  # needs torch

    return AveragedNetworks(models)
