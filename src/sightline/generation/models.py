"""A loaded model of a family with the verbs that suit it: what `sightline.load` returns of the Hugging Face layout.

Each verb turns strings (pictures, sound) into what a network takes, hands it to the module that knows how, and turns
the answer back. Not here: networks, files of weights, searches.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch

from sightline.checkpoint.folder import Folder
from sightline.checkpoint.vocabulary import Vocabulary, fingerprint
from sightline.data.corpus import read_lines
from sightline.decode.candidates import CandidateTable
from sightline.decode.contract import Hypothesis
from sightline.decode.streaming import growing_text
from sightline.decode.translator import Translation
from sightline.errors import UserError
from sightline.evaluate.language import LanguageReport, language_report
from sightline.generation.chat import Messages, mark_of, refuse_single, render_chat, tokenizer_settings, without_mark
from sightline.generation.family_model import FamilyModel
from sightline.generation.fill import Filling, fillings, mask_of
from sightline.generation.label import LabelVerbs
from sightline.generation.languages import Languages, read_languages
from sightline.generation.pictures import PictureModel
from sightline.generation.reading import longest_text
from sightline.generation.rewrite import form_for, rewrite, stream_rewrite, with_begins
from sightline.generation.settings import GenerationSettings, read_settings
from sightline.generation.sides import offered_by, pieces_of, prefix_ids, target_side
from sightline.generation.stopping import before_stop, stop_at, until_stop
from sightline.generation.text import Onward, Perplexity, perplexity, stream_on, write_on
from sightline.generation.translating import COMPUTES, FamilyTranslator
from sightline.generation.vectors import EmbeddingVerbs, Forward, TextEmbedder, text_embedder
from sightline.looks import LookVerbs
from sightline.network.axes import NetworkConfig
from sightline.network.compiled import native_available
from sightline.network.halves import DecoderOnly, EncoderOnly
from sightline.network.prepared import PreparedForms
from sightline.network.transformer import Transformer
from sightline.pairs import PairVerbs

if TYPE_CHECKING:
    from sightline.evaluate.classes import LabelReport
    from sightline.evaluate.retrieval import RetrievalReport
    from sightline.generation.shown import Encoded, Example, ReadOn

CONTEXT = 8  # tokens of a prompt that are decoded again before what follows it
WINDOW = 1024  # tokens read at once for a perplexity, where the model knows no limit

Detokenise = Callable[[list[int]], str]


@dataclass(frozen=True)
class Output:
    """What a model has written."""

    text: str  # without marks, and without a stop string
    tokens: list[int]  # all that were written, without the end mark
    score: float  # log-probability over length^alpha: what alternatives are ranked by
    log_prob: float  # natural log, with the end mark
    token_log_probs: list[float]  # of each token, and of the end mark if there is one
    ended: str  # why: "end" (by the model), "stop" (by a stop string) or "length"
    alternatives: tuple["Output", ...] = ()  # the further n-best, best first


NOTHING = Translation("", 0.0, 0.0, [], [], [], parts=0)


class Writer(FamilyModel):
    """What all models that write have in common."""

    @cached_property
    def generation(self) -> GenerationSettings:
        """How it writes unless a call says otherwise; `unused` names what its file asks for and is not to be had."""
        return read_settings(self.path, self.hf_config, has_encoder=self.config.encoder is not None)


def output_of(ranked: Sequence[Hypothesis], decode: Detokenise, stops: Sequence[str]) -> Output:
    """The best hypothesis as text, with the others behind it."""
    best, *others = [_one_output(found, decode, stops) for found in ranked]
    return replace(best, alternatives=tuple(others))


def _one_output(found: Hypothesis, decode: Detokenise, stops: Sequence[str]) -> Output:
    whole = decode(found.tokens)
    text = before_stop(whole, stops)
    ended = "stop" if text != whole else "end" if len(found.token_log_probs) > len(found.tokens) else "length"
    return Output(text, found.tokens, found.score, found.log_prob, found.token_log_probs, ended)


@runtime_checkable
class Predictor(Protocol):
    """What `TextVerbs` are made of."""

    @property
    def path(self) -> Path: ...
    @property
    def hf_config(self) -> dict[str, Any]: ...
    @property
    def tokenizer(self) -> Vocabulary: ...
    @property
    def generation(self) -> GenerationSettings: ...
    @property
    def max_len(self) -> int | None: ...
    @property
    def onward(self) -> Onward: ...
    def encode(self, prompt: str | Messages) -> list[int]: ...
    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity: ...
    def decode_after(self, prompt: Sequence[int]) -> Detokenise: ...


class TextVerbs:
    """Writing on, for whatever predicts the next token of a text."""

    def generate(self: Predictor, prompts: Sequence[str | Messages], **settings: Any) -> list[Output]:
        """What follows each prompt; an output depends on no other prompt.

        Args:
            prompts: texts; or conversations, lists of `{"role": "user", "content": "..."}`, for models with a template.
            **settings: fields of `sightline.generation.settings.GenerationSettings`, such as `max_new_tokens=50`.

        Raises:
            UserError: a setting makes no sense, a prompt is empty or too long, or there is no chat template.
        """
        refuse_single(prompts, "generate")
        chosen = self.generation.changed(settings)
        stop = stop_at(chosen.stop, self.tokenizer.decode)
        ids = [self.encode(prompt) for prompt in prompts]
        found = write_on(self.onward, ids, chosen, self.max_len, stop)
        pairs = zip(ids, found, strict=True)
        return [output_of(ranked, self.decode_after(prompt), chosen.stop) for prompt, ranked in pairs]

    def stream(self: Predictor, prompt: str | Messages, **settings: Any) -> Iterator[str]:
        """What follows one prompt, piece by piece while it is being written; joined, what `generate` gives.

        Raises:
            UserError: as of `generate`, or the settings ask for a beam search, which may change its mind.
        """
        chosen = _streamed(self.generation, settings)
        ids = self.encode(prompt)
        tokens = stream_on(self.onward, ids, chosen, self.max_len)
        return until_stop(growing_text(tokens, self.decode_after(ids)), chosen.stop)

    def perplexity(self: Predictor, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        """How well the model predicts a text of any length.

        Args:
            text: read from its first token on, which is given.
            stride: tokens between the beginnings of two windows; fewer give every token more to go by and take longer;
                0 = half a window.
            window: tokens read at once; 0 = as many as the model can read, at most 1,024.
        """
        longest = self.max_len or int(self.hf_config.get("max_position_embeddings") or WINDOW)
        window = window or min(longest, WINDOW)
        if window > longest:
            raise UserError(f"window = {window}: the model reads at most {longest} tokens at once")
        return perplexity(self.onward, self.encode(text), window, stride or max(1, window // 2))

    def evaluate(self: Predictor, paths: Sequence[str]) -> LanguageReport:
        """How well the model predicts files of text, each read as `perplexity` reads it."""
        texts = ["\n".join(read_lines(path)) for path in paths]
        found = [self.perplexity(text) for text in texts]
        return language_report(texts, [(one.log_prob, one.tokens) for one in found])

    def encode(self: Predictor, prompt: str | Messages) -> list[int]:
        """The ids of a prompt."""
        return prompt_ids(prompt, self.path, self.tokenizer, self.generation.start_id)

    def decode_after(self: Predictor, prompt: Sequence[int]) -> Detokenise:
        """Ids to the text that they add to a prompt's."""
        return decode_after(self.tokenizer, prompt)


def decode_after(vocabulary: Vocabulary, prompt: Sequence[int]) -> Detokenise:
    """Ids to the text that they add to a prompt's; at the beginning of a text some vocabularies drop a blank."""
    context = list(prompt[-CONTEXT:])
    known = len(vocabulary.decode(context))
    return lambda ids: vocabulary.decode([*context, *ids])[known:]


def prompt_ids(prompt: str | Messages, path: Path, vocabulary: Vocabulary, start_id: int | None) -> list[int]:
    """A prompt as the vocabulary has it; where that is nothing, the start mark if there is one."""
    if not isinstance(prompt, str):
        text = render_chat(path, prompt)
        marked = bool(vocabulary.encode(""))
        return vocabulary.encode(without_mark(path, text) if marked else text)
    return vocabulary.encode(prompt) or ([] if start_id is None else [start_id])


class ForwardModel(LookVerbs, EmbeddingVerbs, FamilyModel):
    """A decoder alone, perhaps without a head (E5-Mistral, Qwen3-Embedding, ...): it embeds texts."""

    network: DecoderOnly
    does = "reads texts"

    def shown(self, given: str) -> "ReadOn":
        """A text, for `attend`."""
        from sightline.generation.shown import text_to_read_on

        return text_to_read_on(self, given, longest_text(self.config.decoder))

    def make_embedder(self) -> TextEmbedder:
        """What turns texts into vectors."""
        stack = self.config.decoder
        assert stack
        network, longest = Forward(self.network), longest_text(stack)
        return text_embedder(network, self.tokenizer, self.hf_config, stack.d_model, longest, self.path)


class TextModel(TextVerbs, ForwardModel, Writer):
    """A decoder alone (GPT-2, LLaMA, ...): it writes on."""

    network: DecoderOnly
    does = "writes texts on"
    usual_task = "lm"

    @property
    def onward(self) -> DecoderOnly:
        """What predicts the next token."""
        return self.network

    @cached_property
    def max_len(self) -> int | None:
        """The longest text the network can take, where it has a limit."""
        return longest_text(self.config.decoder)

    def example(self, given: str, target: Any) -> "Example":
        """A text and how it is predicted, for `head_importance`."""
        from sightline.generation.shown import next_pieces

        return next_pieces(self.shown(given).values)


@dataclass(frozen=True)
class RewritingModel(PairVerbs, Writer):
    """An encoder and a decoder (T5, BART, Marian, M2M-100, NLLB, ...): it translates, summarises, answers.

    Models of many languages are asked `between` two of them, or told which in each call of `generate` and its kin.
    """

    network: Transformer
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
        """How texts are translated unless a call says otherwise; of a trained model it is `DecodeConfig`."""
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
        from sightline.checkpoint.beside import read_shortlist

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


class ReadingModel(LabelVerbs, LookVerbs, EmbeddingVerbs, FamilyModel):
    """An encoder alone (BERT, RoBERTa, ...): it embeds texts; given the head for it, it fills in what is masked, or
    says which label a text has.
    """

    network: EncoderOnly
    does = "reads texts"

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the likeliest pieces, the likeliest first; each mask is filled on its own.

        >>> model.fill_mask("A dog [MASK] in the park.")[0][0].text  # doctest: +SKIP
        'plays'

        Raises:
            UserError: no mask in the text, or a model without the head for it.
        """
        if self.config.head != "masked":
            raise UserError(f"{self.path}: was saved without its head for masked tokens; it can only embed")
        return fillings(lambda mask_id: self.network, text, self.path, self.tokenizer, min(top, self.config.vocab_size))

    def evaluate(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, paths: Sequence[str]
    ) -> "LabelReport | RetrievalReport":
        """Without a head how often a text of a file finds, by its vector, the one that belongs to it (as `train --task
        embed` reads files); with one for labels accuracy and F1.
        """
        if self.config.head != "none":
            return super().evaluate(paths)
        from sightline.data.related import read_related
        from sightline.generation.vectors import retrieved

        lines = read_related(paths)
        return retrieved(self.embedder, [line[0] for line in lines], [line[1] for line in lines])

    def shown(self, given: str) -> "Encoded":
        """A text, for `attend`."""
        from sightline.generation.shown import encoded_text

        return encoded_text(self, given, longest_text(self.config.encoder))

    def example(self, given: str, target: Any) -> "Example":
        """A text, masked here and there, or with its label, for `head_importance`."""
        from sightline.generation.shown import label_number, labelled, masked_text

        if self.config.head == "text_class":
            return labelled(self.shown(given).values, label_number(self, target))
        if self.config.head != "masked":
            return super().example(given, target)
        _, mask_id = mask_of(self.tokenizer, mark_of(tokenizer_settings(self.path), "mask_token"))
        return masked_text(self.shown(given).values, self.tokenizer, mask_id)

    def make_embedder(self) -> TextEmbedder:
        """What turns texts into vectors."""
        stack = self.config.encoder
        assert stack
        longest = longest_text(stack)
        return text_embedder(self.network, self.tokenizer, self.hf_config, stack.d_model, longest, self.path)


def _streamed(
    usual: GenerationSettings, given: dict[str, Any], computes: Sequence[str] = ("float32",)
) -> GenerationSettings:
    chosen = usual.changed({"beam_size": 1, "n_best": 1, **given}, computes)
    if chosen.beam_size > 1 or chosen.n_best > 1:
        raise UserError("a stream is written by greedy search or drawn: leave out beam_size and n_best")
    return chosen


def with_verbs(folder: Folder) -> FamilyModel:
    """The published model in a folder as what it is good for."""
    from sightline.generation.permutation import kind_of_xlnet

    kind: Any = kind_of(folder.config) if isinstance(folder.config, NetworkConfig) else kind_of_xlnet(folder.config)
    return kind(folder.network, folder.config, folder.about, folder.path, torch.device(folder.device))


def rewriting(model: Any, path: str | Path) -> RewritingModel:
    """The model, which `path` names, if it reads a text and writes another; otherwise a `UserError`."""
    if isinstance(model, RewritingModel):
        return model
    family = model.info().get("family", "another kind")
    raise UserError(f"{path}: is a model of {family}; this needs one that reads a text and writes another")


def kind_of(c: NetworkConfig) -> type[FamilyModel]:
    """The class whose verbs suit a network."""
    if c.front == "patches" and c.decoder is None:
        return PictureModel
    if c.decoder is None and c.head == "masked":
        from sightline.generation.masked import MaskedModel  # it is made of what is here

        return MaskedModel
    if c.decoder is None and c.head == "token_class":
        from sightline.generation.tag import TaggingModel  # as above

        return TaggingModel
    if c.decoder is None and c.head == "span":
        from sightline.generation.answer import AnsweringModel

        return AnsweringModel
    if c.decoder is None:
        return ReadingModel
    if c.encoder is None:
        return TextModel if c.head == "language" else ForwardModel
    if c.head != "language":
        return FamilyModel
    if c.front == "patches":
        from sightline.generation.captions import CaptionModel

        return CaptionModel
    if c.front != "audio":
        return RewritingModel
    from sightline.generation.speech import SpeechModel

    return SpeechModel
