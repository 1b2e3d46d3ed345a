"""A model that reads a text and writes another, trained here or elsewhere.

`headwise.load` makes one of every encoder-decoder of text. What a call means does not depend on where the model came
from. What does (files, vocabulary, network) is a `LoadedNetwork`: `models.trained`, `models.pretrained` or, for several
at once, `models.translation.ensemble`. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, runtime_checkable

from headwise.config.search_arguments import SearchArguments
from headwise.config.settings import SearchSettings
from headwise.contract import Draft, SearchEngine
from headwise.documents import is_memory
from headwise.errors import UserError
from headwise.importing import torch_needed
from headwise.models.introspection import PrunableModel
from headwise.models.language.output import Output, output_of
from headwise.models.model import Model, refuse_single
from headwise.models.translation.target_language import own_languages
from headwise.models.translation.workers import Loading, translate_in_processes, worth_sharing
from headwise.runtime.checkpoint.compiled import described
from headwise.runtime.search.drafts import ModelDraft, draft_from
from headwise.runtime.search.engine import execute
from headwise.runtime.search.request import with_start
from headwise.runtime.search.translator import CHUNK_LINES, TextTranslator, Translation
from headwise.text.language_codes import contradicts, document_language

if TYPE_CHECKING:  # types of results: nothing of this is needed to translate
    from headwise.evaluate.alignment import AlignmentScore
    from headwise.evaluate.report import TranslationReport
    from headwise.evaluate.score import PairScore
    from headwise.models.translation.pair_inspector import PairInspector
    from headwise.pytorch.inspect.heads import Head
    from headwise.pytorch.models.translator import TranslatorInTorch
    from headwise.text.files.links import GoldLinks, Links
    from headwise.view.alignment import AlignmentHead
    from headwise.view.attend import Layers
    from headwise.view.notebook import AttentionView, Inspection
    from headwise.view.record import Attribution, Trace, Walk, WalkRecord


Own = TypeVar("Own", bound="Seq2SeqModel")


@runtime_checkable
class LoadedNetwork(Protocol):
    """The network, tokenizer and settings of a folder, or of several."""

    path: Path
    config: Any  # `RunConfig` of a model trained here, otherwise the `NetworkConfig`
    about: dict[str, Any]  # what is known of its training
    hf_config: dict[str, Any]  # config.json of a pretrained model

    @property
    def device_name(self) -> str: ...  # "cpu" or "cuda"
    @property
    def dtype(self) -> str: ...  # precision of the parameters
    @property
    def automatic(self) -> str: ...  # precision of decoding for "auto"
    @property
    def in_library(self) -> bool: ...  # whether the compiled library takes it
    @property
    def changed(self) -> bool: ...  # whether the network computes anything else than the files say
    @property
    def unused(self) -> tuple[str, ...]: ...  # settings that its files ask for and that are not supported
    def torch_module(self) -> Any: ...  # the network, which may have to be made first
    def engine(self, compute: str) -> SearchEngine: ...
    def check_languages(self, source: str, target: str) -> None: ...  # `UserError` where it needs others
    def translator(self, source: str, target: str, instruction: str) -> TextTranslator: ...
    def info(self) -> dict[str, Any]: ...


class Seq2SeqModel(Model):
    """A model that reads a text and writes another: one, or several that write together
    (`models.translation.ensemble`).
    """

    does = "reads a text and writes another"
    reads = "pairs"
    usual_task = "translate"

    def __init__(
        self, loaded: LoadedNetwork, loading: Loading, source_language: str = "", target_language: str = ""
    ) -> None:
        """`loading` is how other processes get the model; the languages are those of calls that do not name any."""
        self._loaded = loaded
        self._loading = loading
        self.path, self.config, self.about = loaded.path, loaded.config, loaded.about
        self.hf_config = loaded.hf_config
        self.source_language, self.target_language = source_language, target_language
        self._translators: dict[tuple[str, str, str], TextTranslator] = {}

    # --- What it is ---

    @property
    def paths(self) -> tuple[str, ...]:
        """All of its folders."""
        return self._loading.paths

    @property
    def network(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The torch module; made when it is first used."""
        return self._loaded.torch_module()

    @property
    def dtype(self) -> str:
        """The precision of the parameters, such as "float32"."""
        return self._loaded.dtype

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of targets, a `text.tokens.pair_tokenizer.PairTokenizer`; its `source` is that of source
        texts.
        """
        return self._for().tokenizer

    @property
    def vocabulary(self) -> Any:
        """The files of a pretrained model's vocabulary, a `runtime.tokenizers.vocabulary.Vocabulary`; otherwise
        None.
        """
        return getattr(self._loaded, "vocabulary", None)

    @property
    def languages(self) -> Any:
        """The languages of a pretrained model; None for a model that was trained here."""
        return getattr(self._loaded, "languages", None)

    @property
    def generation(self) -> Any:
        """The search settings in the files of a pretrained model; None for a model that was trained here."""
        return getattr(self._loaded, "generation", None)

    @property
    def unused(self) -> tuple[str, ...]:
        """Settings that its files ask for and that are not supported."""
        return self._loaded.unused

    @property
    def decode_config(self) -> SearchSettings:
        """The default search settings."""
        return self._for().config

    def settings(self, **settings: Unpack[SearchArguments]) -> SearchSettings:
        """The settings of a call; `UserError` for one that is unknown or makes no sense."""
        return self.decode_config.changed(settings)

    @property
    def engine(self) -> str:
        """The engine that translates by default: "torch", or the library and its build."""
        compiled = self._loaded.device_name == "cpu" and self._translates_in_threads(self.decode_config)
        return described() if compiled else "torch"

    @property
    def precision(self) -> str:
        """The weight precision with which texts are translated unless a call says otherwise."""
        compute = self.decode_config.compute
        return self._loaded.automatic if compute == "auto" else compute

    @property
    def compiled(self) -> bool:
        """Whether the compiled library searches with it."""
        return self._loaded.device_name == "cpu" and self._loaded.in_library

    def info(self) -> dict[str, Any]:
        """The size and settings of the model, and its training if that is known."""
        return self._loaded.info()

    def __str__(self) -> str:
        family = f"this {self.config.family}" if self.hf_config else "this model"
        return f"{self.path}: {family} {self.does}"

    @property
    def sides(self) -> Any:
        """The tokenizer of targets, a `text.tokens.pair_tokenizer.PairTokenizer`; its `source` is that of source
        texts.
        """
        return self._translator.tokenizer

    @property
    def n_pieces(self) -> int:
        """The size of the vocabulary."""
        return self.sides.vocab_size

    # --- Languages ---

    def between(self: Own, source_language: str = "", target_language: str = "", *, complete: bool = True) -> Own:
        """The same model for one pair of languages, for all its methods.

        Without `complete` it may do without a language that it needs for scores and alignments.

        Raises:
            UserError: it does not know one of them, or needs to know which.
        """
        source, target = self._pair(source_language, target_language)
        if complete:
            self._loaded.check_languages(source, target)
        return type(self)(self._loaded, self._loading, source, target)

    def with_network(self: Own, network: Any) -> Own:
        """The same pretrained model with another network of its kind, such as one that is being trained."""
        loaded: Any = self._loaded
        return type(self)(loaded.with_network(network), self._loading, self.source_language, self.target_language)

    def _pair(self, source: str, target: str) -> tuple[str, str]:
        return source or self.source_language, target or self.target_language

    def _for(self, source_language: str = "", target_language: str = "", instruction: str = "") -> TextTranslator:
        source, target = self._pair(source_language, target_language)
        key = source, target, instruction
        if key not in self._translators:
            self._translators[key] = self._loaded.translator(*key)
        return self._translators[key]

    def translator_of_pairs(
        self, source_language: str = "", target_language: str = "", instruction: str = ""
    ) -> TextTranslator:
        """The translator for inspecting pairs, with its settings; `UserError` if a language is missing."""
        source, target = self._pair(source_language, target_language)
        self._loaded.check_languages(source, target)
        return self._for(source, target, instruction)

    @property
    def _translator(self) -> TextTranslator:
        return self.translator_of_pairs()

    # --- Translating ---

    def translate(
        self,
        texts: Sequence[str],
        prefix: str = "",
        draft: Draft | str = "",
        glossary: Any = None,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Unpack[SearchArguments],
    ) -> list[Translation]:
        """The translation of each text, in order; blank texts stay blank.

        Args:
            texts: any strings. A text that is too long for the model, or for `max_source_length`, is translated in
                parts.
            prefix: text with which every output begins.
            draft: source of draft tokens for greedy search, as for `draft`; it speeds up single sentences.
            glossary: required terms: a `headwise.documents.glossary.terms.Glossary`, a file
                (`docs/how-to/glossaries.md`), or pairs of a source term and its translation.
            source_language, target_language: language codes of a multilingual model, in its own notation ("de",
                "deu_Latn", "de_DE").
            instruction: text in front of each source, such as T5's "summarize: ".
            **settings: fields of `headwise.config.settings.SearchSettings`, such as `beam_size=1`.

        Raises:
            UserError: a setting is invalid, or the model does not support a language.
        """
        refuse_single(texts, "translate")
        translator = self._for(source_language, target_language, instruction)
        guesses = self._guesses(draft, translator)
        translator = self._with_glossary(translator, glossary, source_language, target_language)
        return translator.translate(texts, prefix, guesses, **settings)

    def translate_lines(
        self,
        lines: Iterable[str],
        prefix: str = "",
        chunk_lines: int = CHUNK_LINES,
        workers: int = 1,
        draft: Draft | str = "",
        glossary: Any = None,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Unpack[SearchArguments],
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory.

        Arguments are those of `translate`, and:

        Args:
            chunk_lines: lines that are read and translated together.
            workers: processes that share the lines (see `headwise.models.translation.workers`). 0 is one for each CPU
                core if torch decodes and there are enough lines; the compiled library uses all cores in one process.

        Raises:
            UserError: as for `translate`, or `workers` is negative.
        """
        if workers < 0:
            raise UserError(f"workers = {workers}: must be a number of processes, or 0 for as many as pay")
        translator = self._for(source_language, target_language, instruction)
        guesses, chosen = self._guesses(draft, translator), translator.settings(dict(settings))
        if self._loaded.changed or guesses or glossary:
            workers = 1  # other processes would read the whole model from its directory, and that alone
        if workers == 0 and self._loaded.device_name == "cpu" and not self._translates_in_threads(chosen):
            workers, lines = worth_sharing(lines)
        if workers > 1:
            source, target = self._pair(source_language, target_language)
            own = {"prefix": prefix, "instruction": instruction, **settings}
            own |= {"source_language": source, "target_language": target}
            return translate_in_processes(self._loading, lines, workers, own)
        translator = self._with_glossary(translator, glossary, source_language, target_language)
        return translator.translate_lines(lines, prefix, chunk_lines, guesses, **settings)

    def _with_glossary(self, translator: TextTranslator, glossary: Any, source: str, target: str) -> TextTranslator:
        """The translator, with a glossary if one is given."""
        if not glossary:
            return translator
        from headwise.documents.glossary.translation import with_glossary  # a translation without one does without it

        given = map(document_language, self._pair(source, target))
        languages = [one or own for one, own in zip(given, own_languages(self), strict=True)]
        return with_glossary(translator, glossary, languages)

    def _translates_in_threads(self, settings: SearchSettings) -> bool:
        return settings.compute != "float16" and not settings.stop and self._loaded.in_library

    def stream(
        self,
        text: str,
        prefix: str = "",
        draft: Draft | str = "",
        glossary: Any = None,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Unpack[SearchArguments],
    ) -> Iterator[str]:
        """The translation of one text by greedy search or sampling, in parts as soon as they are decoded.

        Arguments are those of `translate`, except `glossary`, which needs beam search.

        >>> print(*model.stream("A dog runs."), sep="|")  # doctest: +SKIP
        Ein| Hund| läuft|.
        """
        if glossary:
            raise UserError("a glossary is kept to by beam search, and a stream has no beam: leave out the glossary")
        translator = self._for(source_language, target_language, instruction)
        return translator.stream(text, prefix, self._guesses(draft, translator), **settings)

    def generate(
        self,
        texts: Sequence[str],
        prefix: str = "",
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Unpack[SearchArguments],
    ) -> list[Output]:
        """The output for each text without any preprocessing of line ends and spaces, with tokens and scores.

        Arguments are those of `translate`. `UserError` for a text that is too long for the model.
        """
        refuse_single(texts, "generate")
        translator = self._for(source_language, target_language, instruction)
        chosen, forced = translator.settings(dict(settings)), translator.encode_prefix(prefix)
        sources = translator.tokenizer.source.encode_batch(texts)
        longest = translator.longest_source
        for source in sources:
            if longest and (n := len(translator.special.ended(source))) > longest:
                raise UserError(f"the text has {n} tokens, and this model reads {longest}: `translate` cuts long texts")
        request = translator.request(sources, [forced] * len(sources), chosen)
        decode, opening = translator.tokenizer.decode, translator.opening
        found = [[with_start(one, opening) for one in of] for of in execute(translator.engine(chosen), request)]
        return [output_of(ranked, decode, chosen.stop) for ranked in found]

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        metrics: Sequence[str] | None = None,
        tokenize: str = "",
        multi30k: str = "",
        **arguments: Any,
    ) -> TranslationReport:
        """Translate `sources` and compare the translations with one or several lists of `references`.

        `metrics`, `tokenize` and `multi30k` are those of `headwise.evaluate.report.evaluate_model`, all other arguments
        those of `translate`.
        """
        from headwise.evaluate.report import evaluate_model  # a translation does without it

        named = {} if metrics is None else {"metrics": metrics}
        return evaluate_model(self, sources, references, None, multi30k or None, tokenize, overrides=arguments, **named)

    # --- Drafts ---

    def draft(self, origin: Draft | str, *, source_language: str = "", target_language: str = "") -> Draft | None:
        """A draft for speculative decoding in `translate` and `stream`, which can be reused for many texts.

        Args:
            origin: "input" (copies tokens of the source), the folder of a smaller model with the same tokenizer, a
                translation memory (any training file of `headwise.train`), an existing draft, or "" for none.
            source_language, target_language: as for `translate`.
        """
        return self._guesses(origin, self._for(source_language, target_language))

    def _guesses(self, origin: Draft | str, translator: TextTranslator) -> Draft | None:
        if not isinstance(origin, str) or not origin:
            return origin or None
        if is_memory(origin) and not Path(origin).is_dir():
            from headwise.documents.memory import memories_as_tsv  # reads all formats; other drafts do without it

            (origin,), _ = memories_as_tsv([origin], own_languages(self))

        def small(path: str) -> ModelDraft:
            model = self._loading.load(path, self._loading.device)
            other = model._for(self.source_language, self.target_language)
            if other.tokenizer.fingerprint != translator.tokenizer.fingerprint:
                raise UserError(
                    f"{path}: has another tokenizer than {self.path}; a draft must be trained with the same"
                )
            return ModelDraft(other.engine(other.config), translator.special)

        return draft_from(origin, translator.tokenizer.source.encode, translator.encode_prefix, small)


class Translator(PrunableModel, Seq2SeqModel):
    """A translation model, or another encoder-decoder for texts (T5, BART, ...), with its tokenizer and settings.

    Methods for a source and its target take the languages and the instruction of `translate`.
    """

    def inspector(self, source_language: str = "", target_language: str = "", instruction: str = "") -> PairInspector:
        """The inspector for pairs of a source and a target; arguments as for `translate`."""
        from headwise.models.translation.pair_inspector import PairInspector  # a translation does without it

        return PairInspector(self, self.translator_of_pairs(source_language, target_language, instruction))

    def torch(self, source_language: str = "", target_language: str = "", instruction: str = "") -> TranslatorInTorch:
        """The model in torch; arguments as for `translate`; `UserError` if PyTorch is not installed."""
        with torch_needed():
            from headwise.pytorch.models.translator import TranslatorInTorch
        return TranslatorInTorch(self, self.translator_of_pairs(source_language, target_language, instruction))

    @property
    def alignment_head(self) -> Any:
        """The attention that `align` reads."""
        return self.inspector().alignment_head

    @property
    def known_alignment_head(self) -> Any:
        """The same, if it was chosen for this folder or trained to align."""
        return self.inspector().known_alignment_head

    # --- Pairs of a source and its target ---

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
    ) -> list[PairScore]:
        """The log-probability of each target as the translation of its source (natural logarithms)."""
        return self.inspector(source_language, target_language, instruction).score(sources, targets)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        head: AlignmentHead | None = None,
        reverse: Any = None,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
    ) -> list[Links]:
        """The word links of each pair from the model's attention: (source word, target word), counted from 0.

        Args:
            sources: texts, whose words are separated by spaces.
            targets: their translations, by any translator.
            head: the attention from which links are read; None: `alignment_head`.
            reverse: a model of the opposite direction, for symmetrised links (`grow_diagonal`).

        Raises:
            UserError: the model has no attention over the source, there is no such head, the numbers of lines differ,
                a pair is too long, or `reverse` is for other languages.
        """
        if reverse:
            pair, back = own_languages(self), own_languages(reverse)[::-1]
            if any(map(contradicts, pair, back)):
                what = f"{reverse.path} translates from {back[1]} to {back[0]}"
                raise UserError(f"reverse: {what}, which is not the opposite of {pair[0]} to {pair[1]}")
        inspector = self.inspector(source_language, target_language, instruction)
        return inspector.align(sources, targets, head, reverse)

    def rank_heads(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        gold: Sequence[GoldLinks],
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
    ) -> dict[AlignmentHead, AlignmentScore]:
        """Every attention over the source with its alignment error rate on these pairs, best first."""
        return self.inspector(source_language, target_language, instruction).rank_heads(sources, targets, gold)

    def attribute(
        self,
        src: str,
        tgt: str | None = None,
        steps: int = 64,
        prefix: str = "",
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Any,
    ) -> Attribution:
        """The amount by which each source word raised the log-probability of each target word
        (`headwise.pytorch.inspect.attribution`).

        `steps` is the number of steps of the integral; other arguments are those of `attend`.
        """
        torch = self.torch(source_language, target_language, instruction)
        return torch.attribute(src, tgt, steps, prefix, **settings)

    # --- Introspection ---

    def attend(
        self,
        src: str,
        tgt: str | None = None,
        layers: Layers | None = None,
        heads: Sequence[int] | None = None,
        prefix: str = "",
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Any,
    ) -> AttentionView:
        """Attention weights for a source and its target (`headwise.view.attend`).

        Args:
            src: a text.
            tgt: its translation; None: the model translates, with `prefix` and `settings` as for `translate`.
            layers: numbers of layers, for all stacks or by stack (`{"encoder": [-1]}`); None: all.
            heads: numbers of heads in these layers; None: all.

        Raises:
            UserError: the text is blank or too long, or there is no such layer or head.
        """
        inspector = self.inspector(source_language, target_language, instruction)
        return inspector.attend(src, tgt, layers, heads, prefix, **settings)

    def trace(
        self,
        src: str,
        tgt: str | None = None,
        top: int = 10,
        prefix: str = "",
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **settings: Any,
    ) -> Trace:
        """The `top` predictions at each position after every layer, and the beam.

        Other arguments are those of `attend`. See `headwise.view.trace`.
        """
        inspector = self.inspector(source_language, target_language, instruction)
        return inspector.trace(src, tgt, top, prefix, **settings)

    def look_inside(
        self,
        src: str,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **options: Any,
    ) -> Inspection:
        """`attend` and `trace`; a notebook shows the whole page."""
        return self.inspector(source_language, target_language, instruction).look_inside(src, **options)

    def walk(
        self,
        src: str,
        tgt: str | None = None,
        stack: str = "",
        layer: int = 0,
        head: int = 0,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **options: Any,
    ) -> Walk:
        """The values of every step of figure 1 for one layer and head, in order (`headwise.pytorch.inspect.walk`).

        Args:
            stack: "encoder" or "decoder"; "": the first that the model has.
            layer: number of the layer, from 0.
            head: number of the head, from 0.

        Other arguments are those of `attend`.

        Raises:
            UserError: as for `attend`; the network is not a Transformer; or there is no such layer or head.
        """
        torch = self.torch(source_language, target_language, instruction)
        return torch.walk(src, tgt, stack, layer, head, **options)

    def walks(
        self,
        src: str,
        tgt: str | None = None,
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        **options: Any,
    ) -> WalkRecord:
        """The walks through all layers and heads for one input, which the model reads once; arguments as for `walk`."""
        return self.torch(source_language, target_language, instruction).walks(src, tgt, **options)

    def head_importance(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
    ) -> dict[Head, float]:
        """The sensitivity of the loss of these translations to each head (`headwise.pytorch.inspect.importance`).

        Raises:
            UserError: no pairs, different numbers of sources and targets, or a network without such heads.
        """
        return self.torch(source_language, target_language, instruction).head_importance(sources, targets)
