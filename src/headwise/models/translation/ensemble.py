"""Several models that write one translation: at every step their log-probabilities are averaged.

See `runtime/native/search.c` for the averaging, and `pytorch.search.ensemble` for the same with torch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.config.settings import RunConfig
from headwise.contract import SearchEngine
from headwise.errors import UserError
from headwise.importing import torch_needed
from headwise.models.model import Unable
from headwise.models.translation.target_language import own_languages
from headwise.models.translation.translator import LoadedNetwork, Seq2SeqModel, Translator
from headwise.models.translation.workers import Loading
from headwise.runtime.checkpoint.trained import TOKENIZER
from headwise.runtime.native.network import CompiledEnsemble, CompiledNetwork
from headwise.runtime.search.translator import TextTranslator
from headwise.text.language_codes import contradicts


class Ensemble(Seq2SeqModel):
    """Models whose log-probabilities are averaged at every step of one search; made by `headwise.load([a, b])`.

    Settings and the shortlist are those of the first; else the order of the models changes no more than rounding.
    What is about one network, such as its attention, has to be asked of one of `models`.
    """

    @property
    def models(self) -> tuple[Translator, ...]:
        """The members."""
        loaded: Any = self._loaded
        return loaded.members

    def __repr__(self) -> str:
        """Its members."""
        return f"Ensemble({', '.join(map(repr, self.models))})"

    def info(self) -> dict[str, Any]:
        """There are several."""
        raise of_one("info")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(Translator, name):
                raise of_one(name)
            return super().__getattr__(name)


def of_one(name: str) -> Unable:
    """The error for what has to be asked of one of the models."""
    return Unable(f"an ensemble has no '{name}': ask one of its `models`")


def ensemble_of(models: Sequence[Translator], loading: Loading) -> Ensemble:
    """Models as one; `UserError` for one whose tokenizer or languages are not those of the first."""
    first, *others = models
    for model in others:
        if (model.hf_config == {}) != (first.hf_config == {}):
            raise UserError(
                f"{model.path}: an ensemble is of pretrained models, or of models trained here, not of both"
            )
        if _tokens(model) != _tokens(first):
            trained = isinstance(first.config, RunConfig)
            hint = f": train them with --set data.tokenizer={first.path / TOKENIZER}" if trained else ""
            raise UserError(
                f"{model.path}: has another tokenizer than {first.path}, and models that translate together share "
                f"one{hint}"
            )
        pair, own = own_languages(model), own_languages(first)
        if any(map(contradicts, pair, own)):
            what = f"translates from {pair[0]} to {pair[1]}, and {first.path} from {own[0]} to {own[1]}"
            raise UserError(f"{model.path}: {what}; an ensemble writes one translation")
    return Ensemble(EnsembleNetwork(tuple(models)), loading)


def _tokens(model: Translator) -> Any:
    return model._for().tokenizer.fingerprint


class EnsembleNetwork:
    """Several models as one `models.translation.translator.LoadedNetwork`; what is not averaged is of the first."""

    def __init__(self, members: tuple[Translator, ...]) -> None:
        self.members = members
        self._parts: list[LoadedNetwork] = [member._loaded for member in members]
        first = self._parts[0]
        self.path: Path = first.path
        self.config, self.about, self.hf_config = first.config, first.about, first.hf_config
        self.device_name, self.unused = first.device_name, first.unused
        self.check_languages, self.info = first.check_languages, first.info
        self.languages = getattr(first, "languages", None)
        self.generation = getattr(first, "generation", None)

    def torch_module(self) -> Any:
        """There are several."""
        raise of_one("network")

    @property
    def dtype(self) -> str:
        """The precision of the first model's parameters."""
        return self._parts[0].dtype

    @property
    def automatic(self) -> str:
        """The precision of decoding for "auto", that of the first model."""
        return self._parts[0].automatic

    @property
    def in_library(self) -> bool:
        """Whether the compiled library takes all of them."""
        return all(part.in_library for part in self._parts)

    @property
    def changed(self) -> bool:
        """Whether one of them computes anything else than its files say."""
        return any(part.changed for part in self._parts)

    def engine(self, compute: str) -> SearchEngine:
        """The compiled library, where it has all models; else torch has all of them."""
        engines: list[Any] = [part.engine(compute) for part in self._parts]
        if all(isinstance(engine, CompiledNetwork) for engine in engines):
            return CompiledEnsemble(tuple(engines))
        networks = [part.torch_module() for part in self._parts]
        with torch_needed():
            from headwise.pytorch.checkpoint.with_torch import average_engines
        return average_engines(engines, networks, compute)

    def translator(self, source: str, target: str, instruction: str) -> TextTranslator:
        """The translator of the first model, which searches with all of them."""
        own = [part.translator(source, target, instruction) for part in self._parts]
        first = own[0]
        return TextTranslator(
            self.engine,
            first.tokenizer,
            first.config,
            min((one.max_len for one in own if one.max_len), default=None),
            first.shortlist,
            None,
            min((one.longest_source for one in own if one.longest_source), default=None),
        )
