"""Encoder-decoders."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from sightline.checkpoint.vocabulary import fingerprint
from sightline.decode.candidates import CandidateTable
from sightline.decode.streaming import growing_text
from sightline.decode.translator import Translation
from sightline.errors import UserError
from sightline.generation.chat import refuse_single
from sightline.generation.languages import Languages, read_languages
from sightline.generation.output import NOTHING, Output, output_of
from sightline.generation.reading import longest_text
from sightline.generation.rewrite import form_for, rewrite, stream_rewrite, with_begins
from sightline.generation.settings import GenerationSettings, _streamed
from sightline.generation.sides import offered_by, pieces_of, prefix_ids, target_side
from sightline.generation.stopping import stop_at, until_stop
from sightline.generation.translating import COMPUTES, FamilyTranslator
from sightline.models.family_model import Writer
from sightline.models.pairs import PairVerbs
from sightline.network.compiled import native_available
from sightline.network.prepared import PreparedForms
from sightline.network.transformer import Transformer


@dataclass(frozen=True)
class RewritingModel(PairVerbs, Writer):
    """An encoder and a decoder (T5, BART, Marian, M2M-100, NLLB, ...): it translates, summarises, answers.

    Models of many languages are asked `between` two of them, or told which in each call of `generate` and its kin.
    """

    network: Transformer = field()
    does = "reads a text and writes another"
    source_language: str = ""  # where a call does not say: codes as the model has them ("de", "deu_Latn", "de_DE")
    target_language: str = ""

    def __post_init__(self) -> None:
        _ = self.forms  # so that they know the network as it was loaded

    def between(self, source_language: str = "", target_language: str = "") -> "RewritingModel":
        """The same model for one pair of languages, for all its verbs.

        Raises:
            UserError: it does not know one of them, or cannot do without knowing which.
        """
        chosen = replace(
            self,
            source_language=source_language or self.source_language,
            target_language=target_language or self.target_language,
        )
        chosen.languages.check(chosen.source_language, chosen.target_language, self.generation)
        return chosen

    def generate(
        self,
        texts: Sequence[str],
        prefix: str = "",
        source_language: str = "",
        target_language: str = "",
        **settings: Any,
    ) -> list[Output]:
        """What the model makes of each text.

        Args:
            texts: any strings.
            prefix: what is put before each text, such as T5's "summarize: ".
            source_language, target_language: codes as the model has them ("de", "deu_Latn", "de_DE").
            **settings: fields of `sightline.generation.settings.GenerationSettings`, such as `beam_size=4`.

        Raises:
            UserError: a setting makes no sense, or the model does not know a language.
        """
        refuse_single(texts, "generate")
        source, target = source_language or self.source_language, target_language or self.target_language
        chosen = self.languages.settings(self.settings(**settings), target)
        return self._rewritten([self.languages.encode(prefix + text, source, target) for text in texts], chosen, None)

    def _rewritten(
        self, sources: Sequence[list[int]], chosen: GenerationSettings, offered: CandidateTable | None
    ) -> list[Output]:
        stop = stop_at(chosen.stop, self.tokenizer.decode)
        found = rewrite(form_for(chosen, self.forms), sources, chosen, self.max_len, stop, offered)
        whole = ([with_begins(one, chosen) for one in ranked] for ranked in found)
        return [output_of(ranked, self.tokenizer.decode, chosen.stop) for ranked in whole]

    def translate(
        self,
        texts: Sequence[str],
        source_language: str = "",
        target_language: str = "",
        prefix: str = "",
        shortlist: bool = False,
        draft: str = "",
        **settings: Any,
    ) -> list[Translation]:
        """`generate` for models that translate, told in pieces; blank texts stay blank.

        `prefix` is what every output must begin with, whole words of the language that is written; with `shortlist`
        nothing is written but what `sightline shortlist` found likely; a `draft` ("input", or a translation memory)
        guesses for greedy search, one text at a time.
        """
        refuse_single(texts, "translate")
        source, target = source_language or self.source_language, target_language or self.target_language
        greedy: dict[str, Any] = {"beam_size": 1, "n_best": 1} if draft else {}
        chosen = self.languages.settings(self.settings(**greedy | settings), target)
        side = target_side(self.languages, chosen, source, target) if prefix.strip() or draft else None
        if side:
            chosen = replace(chosen, begins=prefix_ids(side, chosen, prefix))
        said = [self.languages.encode(text, source, target) for text in texts if text.strip()]
        few = self.between(source, target).offered if shortlist else None
        found = iter(self._guessed(said, chosen, draft, side, few) if draft else self._rewritten(said, chosen, few))
        read = (pieces_of(self.tokenizer, ids[:-1]) for ids in said)
        return [self._in_pieces(next(found), next(read)) if text.strip() else NOTHING for text in texts]

    def _guessed(self, sources: list[list[int]], chosen: Any, origin: str, side: Any, few: Any) -> list[Output]:
        from sightline.generation.guessing import rewrite_all_guessed

        found = rewrite_all_guessed(self.forms(chosen.compute), sources, origin, side, chosen, self.max_len, few)
        return [output_of([with_begins(one, chosen)], self.tokenizer.decode, ()) for one in found]

    def _in_pieces(self, found: Output, read: list[str]) -> Translation:
        written = pieces_of(self.tokenizer.written or self.tokenizer, found.tokens)
        told = found.token_log_probs[: len(written)]
        others = tuple(self._in_pieces(other, read) for other in found.alternatives)
        return Translation(found.text, found.score, found.log_prob, written, told, read, 1, others)

    def translate_lines(
        self,
        lines: Iterable[str],
        prefix: str = "",
        chunk_lines: int = 1000,
        workers: int = 0,
        draft: str = "",
        **settings: Any,
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory, in this process alone."""
        if workers > 1:
            raise UserError("workers: is for models that Sightline has trained; this one uses all cores as it is")
        waiting = iter(lines)
        while chunk := list(islice(waiting, chunk_lines)):
            yield from self.translate(chunk, prefix=prefix, draft=draft, **settings)

    def stream(
        self, text: str, prefix: str = "", source_language: str = "", target_language: str = "", **settings: Any
    ) -> Iterator[str]:
        """What the model makes of one text, piece by piece; arguments as of `generate`, but no beam search."""
        source, target = source_language or self.source_language, target_language or self.target_language
        chosen = self.languages.settings(_streamed(self.generation, settings, COMPUTES), target)
        ids = self.languages.encode(prefix + text, source, target)
        tokens = stream_rewrite(self.forms(chosen.compute), ids, chosen, self.max_len)
        return until_stop(growing_text(tokens, self.tokenizer.decode), chosen.stop)

    def settings(self, shortlist: bool = False, **settings: Any) -> GenerationSettings:
        """The settings of a call; `UserError` for one that is unknown or makes no sense. Of `shortlist` they say
        nothing.
        """
        return self.generation.changed(settings, COMPUTES)

    @property
    def decode_config(self) -> GenerationSettings:
        """How texts are translated unless a call says otherwise; of a trained model it is `SearchSettings`."""
        return self.generation

    @property
    def about(self) -> dict[str, Any]:
        """What is known of its training: nothing."""
        return {}

    @cached_property
    def _translator(self) -> FamilyTranslator:
        self.languages.check(self.source_language, self.target_language, self.generation)
        chosen = self.languages.settings(self.generation, self.target_language)
        between = self.source_language, self.target_language
        size = self.config.tgt_vocab_size or self.config.vocab_size
        side = target_side(self.languages, chosen, *between, fingerprint(self.path), size)
        longest = [one for one in (longest_text(self.config.encoder), self.max_len) if one]
        return FamilyTranslator(self.network, side, chosen, self.forms, min(longest, default=None))

    @cached_property
    def offered(self) -> CandidateTable:
        """The shortlist in its folder; `UserError` where there is none, or one of other languages."""
        from sightline.checkpoint.sidecar_files import read_shortlist

        return offered_by(read_shortlist(self.path, self.sides, self.n_pieces), self.sides)

    @property
    def n_pieces(self) -> int:
        """Of the larger vocabulary, where what is read and what is written have one each."""
        return max(self.config.vocab_size, self.config.tgt_vocab_size)

    @cached_property
    def forms(self) -> PreparedForms:
        """The network in the form to decode with, on a CPU the compiled library's where that has all its parts."""
        return PreparedForms(self.network)

    @property
    def compiled(self) -> bool:
        """Whether the compiled library decodes it."""
        return self.device.type == "cpu" and native_available(self.network)

    @cached_property
    def languages(self) -> Languages:
        """From and into which languages it can be asked."""
        return read_languages(self.path, self.config.family, self.tokenizer, self.hf_config)

    @cached_property
    def max_len(self) -> int | None:
        """The longest output, start mark included, where there is a limit."""
        return longest_text(self.config.decoder)


def rewriting(model: Any, path: str | Path) -> RewritingModel:
    """The model, which `path` names, if it reads a text and writes another; otherwise a `UserError`."""
    if isinstance(model, RewritingModel):
        return model
    family = model.info().get("family", "another kind")
    raise UserError(f"{path}: is a model of {family}; this needs one that reads a text and writes another")
