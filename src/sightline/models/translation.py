"""What a translation model and an ensemble of such models are asked alike: to translate.

Not here: how either is made (`api.load`), and what only a single model answers (`api.TrainedTranslator`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.checkpoint.compiled import described
from sightline.config.settings import SearchSettings
from sightline.contract import Draft
from sightline.data.tokenizer import Tokenizer
from sightline.decode.translator import Translation, Translator, override
from sightline.errors import UserError
from sightline.models.model import Model


class TranslationVerbs(Model):
    """Translate texts, a stream of lines, or one text while it is being written."""

    def __init__(self, translator: Translator, paths: Sequence[Path], device: str, for_library: bool) -> None:
        """`paths` are those of all model directories; `for_library`: the compiled library takes what is in them."""
        self._translator = translator
        self.paths = tuple(paths)
        self._device = device
        self._for_library = for_library

    does = "reads a text and writes another"

    @property
    def tokenizer(self) -> Tokenizer:
        """Between texts and token ids."""
        return self._translator.tokenizer

    @property
    def decode_config(self) -> SearchSettings:
        """How texts are translated unless a call says otherwise."""
        return self._translator.config

    def settings(self, **overrides: Any) -> SearchSettings:
        """The settings of a call; `UserError` for one that is unknown or makes no sense."""
        return override(self.decode_config, overrides)

    @property
    def _changed(self) -> bool:
        """Whether this is not what the directories hold."""
        return False

    def _keeping_to(self, given: Any) -> Translator:
        """What translates, with a glossary if one is `given`."""
        if not given:
            return self._translator
        from sightline.glossary.translation import with_glossary

        return with_glossary(self._translator, given)

    def translate(
        self, texts: Sequence[str], prefix: str = "", draft: Draft | str = "", glossary: Any = None, **overrides: Any
    ) -> list[Translation]:
        """Translate each text; as many results as texts, in their order.

        Args:
            texts: any strings.
            prefix: what every output must begin with.
            draft: where guesses for greedy search come from, as `draft` takes it: quicker for single sentences.
            glossary: terms that translations keep to: a `sightline.glossary.Glossary`, a file (`docs/glossaries.md`),
                or pairs of a source and its target.
            **overrides: fields of `sightline.config.settings.SearchSettings`, such as `beam_size=1`.

        Raises:
            UserError: a setting makes no sense.
        """
        return self._keeping_to(glossary).translate(texts, prefix, self.draft(draft), **overrides)

    def draft(self, origin: Draft | str) -> Draft | None:
        """A draft for `translate` and `stream`, to be made once and used often.

        Args:
            origin: "input" (what is copied from the source), the directory of a smaller model with the same tokenizer,
                a translation memory (a file as `sightline.train` takes it), a draft already made, or "" for none.
        """
        if not isinstance(origin, str) or not origin:
            return origin or None
        from sightline.models.drafts import draft_for

        return draft_for(self, origin, self._device)

    def translate_lines(
        self,
        lines: Iterable[str],
        prefix: str = "",
        chunk_lines: int = 1000,
        workers: int = 1,
        draft: Draft | str = "",
        glossary: Any = None,
        **overrides: Any,
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory.

        With several `workers`, that many processes share the lines (see `sightline.models.workers`). 0 is one for each
        CPU core where there are lines enough and torch decodes; the compiled library uses all cores from one process.
        """
        if workers < 0:
            raise UserError(f"workers = {workers}: must be a number of processes, or 0 for as many as pay")
        guesses, translator = self.draft(draft), self._keeping_to(glossary)
        if self._changed or guesses or glossary:
            workers = 1  # other processes would read the whole model from its directory, and that alone
        if workers == 0 and self._device == "cpu" and not self._translates_in_threads(overrides):
            from sightline.models.workers import worth_sharing

            workers, lines = worth_sharing(lines)
        if workers > 1:
            from sightline.models.workers import translate_in_processes

            return translate_in_processes(self.paths, self._device, lines, workers, prefix, overrides)
        return translator.translate_lines(lines, prefix, chunk_lines, guesses, **overrides)

    def _translates_in_threads(self, overrides: Mapping[str, Any]) -> bool:
        config = override(self.decode_config, dict(overrides))
        return config.compute != "float16" and self._for_library

    def stream(self, text: str, prefix: str = "", draft: Draft | str = "", **overrides: Any) -> Iterator[str]:
        """The greedy translation of one text, handed over piece by piece while it is being written.

        >>> print(*model.stream("A dog runs."), sep="|")  # doctest: +SKIP
        Ein| Hund| läuft|.
        """
        from sightline.decode.streaming import stream_text

        return stream_text(self._translator, text, prefix, self.draft(draft), **overrides)

    @property
    def engine(self) -> str:
        """What translates, as the model decodes unless a call says otherwise: "torch", or the library and its build."""
        compiled = self._device == "cpu" and self._translates_in_threads({})
        return described() if compiled else "torch"
