"""`Model`: what `headwise.load` returns, whatever the folder holds and wherever the model came from.

Which methods a model has depends on what its network reads and writes, and on nothing else. Here is every method with
its signature and documentation, for editors, the type checker and `help(Model)`. Each kind of model, a module of this
package, defines those that it has. Calling another one is a `UserError` that lists the methods of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cached_property
from inspect import getattr_static, isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwise.checkpoint.folder import Folder
from headwise.config.settings import RunConfig
from headwise.config.settings import meaningful as own_settings
from headwise.errors import UserError
from headwise.network.config import NetworkConfig, compact_config

if TYPE_CHECKING:  # types of results: nothing of this is needed to load or to translate
    import numpy as np

    from headwise.contract import Draft
    from headwise.data.links import GoldLinks, Links
    from headwise.decode.translator import Translation
    from headwise.evaluate.alignment import AlignmentScore
    from headwise.evaluate.answers import AnswerReport
    from headwise.evaluate.captions import CaptionReport
    from headwise.evaluate.classes import LabelReport, LabelSetReport
    from headwise.evaluate.entities import TagReport
    from headwise.evaluate.forecasts import ForecastReport
    from headwise.evaluate.language import LanguageReport, MaskedReport, Perplexity
    from headwise.evaluate.numbers import RegressionReport
    from headwise.evaluate.retrieval import RetrievalReport
    from headwise.evaluate.score import PairScore
    from headwise.evaluate.transcripts import TranscriptReport
    from headwise.generation.answer import Answer
    from headwise.generation.fill import Filling
    from headwise.generation.output import Output
    from headwise.generation.picture_labels import Label
    from headwise.generation.rank import RankedText
    from headwise.generation.tag import Tagging
    from headwise.generation.transcript_formats import Transcript
    from headwise.glossary.files import GlossaryInput
    from headwise.inspect.alignment import AlignmentHead
    from headwise.inspect.heads import Head, HeadsByLayer
    from headwise.inspect.notebook import AttentionView, Inspection
    from headwise.inspect.record import Attribution, Trace, Walk, WalkRecord

    Report = (
        LabelReport
        | TagReport
        | AnswerReport
        | RetrievalReport
        | ForecastReport
        | LabelSetReport
        | RegressionReport
        | LanguageReport
        | MaskedReport
        | TranscriptReport
        | CaptionReport
    )


Function = TypeVar("Function", bound=Callable[..., Any])


class Unable(UserError, AttributeError):
    """Models of another kind have this method. `hasattr` is False for it, and `dir` does not list it."""


class Method:
    """A method that models with one of `heads` have, others not; on the class it is the function, for `help`."""

    def __init__(self, function: Callable[..., Any], heads: Sequence[str] = ()) -> None:
        self.function, self.heads, self.__doc__ = function, heads, function.__doc__
        self.name = function.__name__

    def __set_name__(self, kind: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Model | None, kind: Any = None) -> Any:
        if model is None:
            return self.function
        if model.head in self.heads:
            return self.function.__get__(model)
        raise Unable(f"{model}; it can {', '.join(model.methods)}, and not {self.name}")


def by_torch(name: str) -> Any:
    """A method that needs torch: a function of this package, "module:function", imported when it is called."""

    def method(self: Model, *given: Any, **options: Any) -> Any:
        return self.needing_torch(f"headwise.models.{name}")(self, *given, **options)

    method.__name__ = name.rpartition(":")[2]
    return method


def only_with(*heads: str) -> Callable[[Function], Function]:
    """Makes a method one that a model only has where its network ends in one of these heads."""
    made: Any = lambda function: Method(function, heads)  # noqa: E731 (for the type checker it stays a function)
    return made


class Model:
    """A network with all that stands in its folder, and the methods that suit it; made by `headwise.load`."""

    does = "has a network that no command uses"  # what the network reads and writes, for errors
    reads = "text"  # what `head_importance` takes: "text" or "pairs"; files: "picture", "sound", "series"
    writes = False  # whether it puts a picture or a sound into words
    usual_task = "translate"  # that it is trained for where none is named
    missing_head = ""  # the class that config.json names, if the file lacks its head

    path: Path
    """The folder."""
    config: Any
    """The axes of a pretrained network; the settings of a model trained here."""
    about: Any
    """config.json of a pretrained model; of one trained here versions, recipe and corpus."""
    decode_config: Any
    """Settings of the search unless a call changes them."""
    alignment_head: Any
    """The attention that `align` reads."""
    known_alignment_head: Any
    """The same, if it was chosen for this folder."""
    needing_torch: Any
    """Imports what needs torch by its name; `UserError` without torch."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.path, self.config, self.about = folder.path, folder.config, folder.about

    @cached_property
    def network(self) -> Any:
        """The torch module, in evaluation mode."""
        return self.folder.network

    @cached_property
    def tokenizer(self) -> Any:
        """Converts between text and ids; `UserError` where the folder has no vocabulary."""
        return self.folder.tokenizer

    @cached_property
    def hf_config(self) -> dict[str, Any]:
        """config.json of a pretrained model."""
        return self.folder.about

    @cached_property
    def device(self) -> Any:
        """Where the network computes."""
        return next(iter(self.network.parameters())).device

    @property
    def dtype(self) -> str:
        """The precision of the parameters, such as "float32"."""
        return self.folder.weights.dtype

    @property
    def head(self) -> str:
        """What the network ends in; some methods depend on it."""
        return getattr(self.config, "head", "")

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this model has."""
        found = {name: getattr_static(type(self), name) for name in METHODS}
        return [name for name, own in found.items() if not isinstance(own, Method) or self.head in own.heads]

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        if isinstance(self.config, RunConfig):
            size = {"vocabulary": self.tokenizer.vocab_size} if self.tokenizer else {}
            return {"parameters": self.n_parameters, **size, **self.about, **own_settings(self.config)}
        axes = compact_config(self.config) if isinstance(self.config, NetworkConfig) else asdict(self.config)
        return {"family": self.config.family, "parameters": self.n_parameters, **axes}

    @property
    def n_parameters(self) -> int:
        """Number of trained values, shared ones counted once."""
        return self.folder.weights.n_parameters

    @property
    def compiled(self) -> bool:
        """Whether the compiled library runs the network as it is in its files."""
        return getattr(self.folder.weights, "parameters", None) is not None

    def __str__(self) -> str:
        """What it is, for errors."""
        lacking = f" (its file lacks the head of {self.missing_head})" if self.missing_head else ""
        return f"{self.path}: this {getattr(self.config, 'family', 'model')} {self.does}{lacking}"

    def __dir__(self) -> list[str]:
        methods = self.methods
        return [name for name in super().__dir__() if name not in METHODS or name in methods]

    # --- Text to text ---

    def translate(
        self,
        texts: Sequence[str],
        *,
        prefix: str = "",
        source_language: str = "",
        target_language: str = "",
        instruction: str = "",
        draft: Draft | str = "",
        glossary: GlossaryInput | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """The translation of each text, in order; blank texts stay blank.

        Args:
            texts: any strings.
            prefix: what every translation must begin with.
            source_language, target_language: codes of a multilingual model ("de", "deu_Latn", "de_DE").
            instruction: text that the model reads before each source, such as T5's "summarize: ".
            draft: source of guesses for speculative greedy search: "input" (copied from the source), a translation
                memory, a smaller model with the same tokenizer, or what `draft` returned.
            glossary: terms that translations must use: a `headwise.glossary.Glossary`, a file
                (`docs/how-to/glossaries.md`), or pairs of a source and its target.
            **settings: of the search, such as `beam_size=4` or `n_best=3`.

        Raises:
            UserError: an invalid setting, or a language that the model does not know.
        """
        ...

    def translate_lines(
        self, lines: Iterable[str], *, chunk_lines: int = 1000, workers: int = 1, **settings: Any
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory, by so many `workers` (processes)."""
        ...

    def between(self, source_language: str = "", target_language: str = "") -> Model:
        """The same multilingual model with these languages as the default of all methods."""
        ...

    def restore(self, texts: Sequence[str], **settings: Any) -> list[Translation]:
        """Each text with words in the place of every `<mask>`."""
        ...

    # --- Generation ---

    def generate(self, prompts: Sequence[Any], /, **settings: Any) -> list[Output]:
        """The continuation of each prompt; of an encoder-decoder, its output for each text. Prompts are independent.

        Args:
            prompts: texts; or conversations, lists of `{"role": "user", "content": "..."}`, for models with a template.
            **settings: fields of `headwise.config.settings.SearchSettings`, such as `max_new_tokens=50`.

        Raises:
            UserError: an invalid setting, a prompt that is empty or too long, or no chat template.
        """
        ...

    def stream(self, text: str, /, **settings: Any) -> Iterator[str]:
        """The output for one text, in parts, while it is generated; joined, what `generate` or `translate` returns.

        Raises:
            UserError: as of `generate`, or the settings ask for beam search, which may revise its output.

        >>> print(*model.stream("A dog runs."), sep="|")  # doctest: +SKIP
        Ein| Hund| läuft|.
        """
        ...

    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        """How well the model predicts a text of any length.

        Args:
            text: its first token is given.
            stride: tokens between the starts of two windows; a smaller stride gives every token more context and takes
                longer; 0 = half a window.
            window: tokens read at once; 0 = as many as the model can read, or 1,024 if it has no limit.
        """
        ...

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
        """The log-probability of each target as the translation of its source (natural logarithms).

        Keyword arguments are as of `translate`; all methods for a source and a target have them.
        """
        ...

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
        """The links (source word, target word) of each pair, counted from 0, from the model's attention.

        Args:
            sources: texts; words are separated by blanks.
            targets: their translations, from any source.
            head: the attention to read links from; None: `alignment_head`.
            reverse: a model of the other direction, to symmetrise with (`grow_diagonal`).

        Raises:
            UserError: no attention over the source, no such head, different numbers of lines, a pair too long.
        """
        ...

    def rank_heads(
        self, sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldLinks]
    ) -> dict[AlignmentHead, AlignmentScore]:
        """Every attention over the source with its alignment error rate on these pairs, best first."""
        ...

    def attribute(self, src: str, /, tgt: str | None = None, **options: Any) -> Attribution:
        """How much each source word raised the log-probability of each target word (`headwise.inspect.attribution`).

        `steps` is the number of steps of the integral (64); the rest is as of `attend`.
        """
        ...

    def walk(self, given: Any, /, *rest: Any, **options: Any) -> Walk:
        """The values of every step of figure 1 for one layer and head, first to last (`headwise.inspect.walk`).

        Args:
            given: a text; a translation model also takes `tgt`, by default its own translation.
            **options: `stack`, "encoder" or "decoder" (default: the first that the model has); `layer` and `head`,
                from 0 (default: 0); others as of `attend`.

        Raises:
            UserError: as of `attend`; the network is not a Transformer of texts; or there is no such layer or head.
        """
        ...

    def walks(self, given: Any, /, *rest: Any, **options: Any) -> WalkRecord:
        """The walks through all layers and heads for one input, which the model reads once; arguments as of `walk`."""
        ...

    # --- Introspection ---

    def attend(self, given: Any, /, *rest: Any, **options: Any) -> AttentionView:
        """Attention weights for one input: a text, or the file of a picture or a sound (`headwise.inspect.attend`).

        Args:
            given: the input; a translation model also takes `tgt`, by default its own translation.
            **options: `layers`, for all stacks or by stack (`{"encoder": [-1]}`), and `heads` of these layers;
                `target`, the transcript or the caption, by default the model's own; `n_times`, into how many stretches
                a sound is divided (300; 0 = one for each encoder position); and what `translate` (with `prefix`),
                `transcribe` or `caption` takes.

        Raises:
            UserError: the input cannot be read, is blank or too long, or there is no such layer or head.
        """
        ...

    def trace(self, given: Any, /, *rest: Any, **options: Any) -> Trace:
        """The `top` (10) predictions at each position after every layer, and of a translation the beam.

        A decoder predicts the next token, an encoder the token at a position (masked or not) or the label of the whole;
        without such a head there are no positions. Options as of `attend`; see `headwise.inspect.trace`.
        """
        ...

    def look_inside(self, given: Any, /, **options: Any) -> Inspection:
        """`attend` and `trace`; a notebook shows the whole page."""
        ...

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        """Silence these attention heads of a Transformer and no others, until the next call; `{}` silences none.

        They contribute nothing to their layer, whatever the model does next. In a `with` statement the heads that were
        silenced before are restored at its end.

        Args:
            heads: numbers of heads by layer and part, all from 0: `{"encoder": {0: [1, 3]}, "decoder": {}, "cross":
                {2: [0]}}`.

        Raises:
            UserError: no such head, or another architecture.

        >>> with model.mask_heads({"cross": {2: [0]}}):  # doctest: +SKIP
        ...     print(model.translate(["A dog runs."])[0].text)
        """
        ...

    def head_importance(self, given: Sequence[Any], /, *targets: Any, **options: Any) -> dict[Head, float]:
        """How much the loss on these inputs would change with each head (`headwise.inspect.importance`).

        Args:
            given: texts, files of pictures or sounds, or CSV files of a forecaster.
            targets: translations; labels, by name or number; transcripts; captions. Not needed for language models,
                masked language models and series. Transcripts and captions are by default the model's own.

        Raises:
            UserError: no inputs, different numbers of inputs and targets, or a network without such a loss.
        """
        ...

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        """Write the model without these heads, named as for `mask_heads`, to a new folder; returns that.

        Raises:
            UserError: no such head, an attention would lose all its heads, or the folder already holds a model.
        """
        ...

    # --- From texts, pictures, sounds and series ---

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the most probable tokens, best first; masks are filled independently.

        >>> model.fill_mask("A dog [MASK] in the park.")[0][0].text  # doctest: +SKIP
        'plays'
        """
        ...

    def embed(
        self,
        texts: Sequence[str],
        pooling: str = "",
        normalize: bool | None = None,
        batch_size: int = 16,
        prompt: str | None = None,
    ) -> np.ndarray:
        """A vector for each text, float32 (texts, width); a text longer than the model reads is cut, with a warning.

        Defaults come from the folder's `modules.json`; without one, the mean, normalised to length 1.

        Args:
            pooling: over the states of all tokens, special tokens included: "mean", "max", "mean_sqrt_len" (the sum
                over the square root of their number) or "weighted_mean" (the n-th counts n times); or the state of the
                "first" or "last" token.
            normalize: scale each vector to length 1, so that dot products are cosines.
            prompt: the name of one of the model's prompts, which is put before each text; "" = none.

        Raises:
            UserError: the folder asks for something unsupported, or a name is unknown.
        """
        ...

    def classify(self, texts: Sequence[Any], threshold: float | None = None) -> list[Any]:
        """A label for each text, or pair of texts, with the probability of every label; long texts are cut.

        Each is a `headwise.generation.label.Classification`; from a model for several labels (`problem_type`
        multi_label_classification) a `LabelSet`, and from one for numbers (regression) a `Regression`.

        Args:
            texts: texts, or pairs of texts in tuples.
            threshold: probability above which a text has a label, for models with several; None = 0.5.

        >>> model.classify(["Who wrote Faust?"])[0].label  # doctest: +SKIP
        'HUM'
        """
        ...

    def rerank(self, query: str, candidates: Sequence[str]) -> list[RankedText]:
        """The candidates in the order of their scores for a query, best first.

        Scores are those of `CrossEncoder.predict` in sentence-transformers: the logit, between 0 and 1 by the sigmoid
        function unless config.json names another activation.

        >>> model.rerank("Who wrote Faust?", ["A play.", "Goethe wrote it."])[0].index  # doctest: +SKIP
        1
        """
        ...

    def tag(self, texts: Sequence[Any]) -> list[Tagging]:
        """The tag of each word, and the spans they mark, with their characters; a text may be a list of words.

        >>> model.tag(["Angela Merkel met Macron."])[0].spans[0].text  # doctest: +SKIP
        'Angela Merkel'
        """
        ...

    def answer(self, questions: Sequence[tuple[str, str]], unanswerable: bool = False) -> list[Answer]:
        """The answer to each question, a span of the text that comes with it.

        >>> model.answer([("Who wrote Faust?", "Faust is a play by Goethe.")])[0].text  # doctest: +SKIP
        'Goethe'

        Args:
            unanswerable: the answer is "" where the model finds that more probable.
        """
        ...

    def label(self, picture: str | Path, top: int = 5) -> list[Label]:
        """The most probable labels of an image file, best first."""
        ...

    def caption(self, pictures: Sequence[str | Path], **settings: Any) -> list[Output]:
        """A description of each image file. Pictures are independent.

        `settings` are fields of `headwise.config.settings.SearchSettings`, such as `beam_size=4`.
        """
        ...

    def transcribe(
        self,
        sound: str | Path,
        language: str = "",
        task: str = "transcribe",
        timestamps: bool = True,
        fallback: bool = True,
        condition: bool = False,
        **settings: Any,
    ) -> Transcript:
        """The transcript of a sound file of any length.

        Args:
            sound: WAV, FLAC or another format of libsndfile.
            language: code of the spoken language ("en"); "" = detect it.
            task: "transcribe", or "translate" into English.
            timestamps: return times of segments. A recording longer than a window is always decoded with timestamps,
                which tell where the next window starts.
            fallback: sample again at higher temperatures where the text repeats itself or is improbable; skip silence.
            condition: each window is conditioned on the text of the previous ones.
            **settings: fields of `headwise.config.settings.SearchSettings`, such as `beam_size=5`.

        Raises:
            UserError: the file cannot be read, or the model does not know the language or the task.
        """
        ...

    def forecast(self, path: str | Path) -> list[float]:
        """The next values after the last row of a CSV file, in its own units."""
        ...

    def evaluate(self, paths: Sequence[str]) -> Report:
        """How good the model is on files as `train` takes them for the same task; which report depends on the task."""
        ...

    def settings(self, **settings: Any) -> Any:
        """The settings of a search with these changes; `UserError` for an unknown or invalid one."""
        ...


METHODS = tuple(name for name, own in vars(Model).items() if isfunction(own) and name[0] != "_" and name != "info")
for _name in METHODS:
    setattr(Model, _name, Method(vars(Model)[_name]))
