"""Every verb of a model with its types: what an editor completes after `sightline.load(...)`, and what there is to ask.

Nobody runs this file: the type checker reads it in the place of the kinds of models, whose own methods say more, and
holds those to it. Inputs come first and by their order, everything else by name.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from sightline.contract import Draft
from sightline.data.labelled import Classification
from sightline.data.links import GoldLinks, Links
from sightline.decode.translator import Translation
from sightline.evaluate.alignment import AlignmentScore
from sightline.evaluate.answers import AnswerReport
from sightline.evaluate.captions import CaptionReport
from sightline.evaluate.classes import LabelReport
from sightline.evaluate.entities import TagReport
from sightline.evaluate.forecasts import ForecastReport
from sightline.evaluate.language import LanguageReport, MaskedReport
from sightline.evaluate.retrieval import RetrievalReport
from sightline.evaluate.score import PairScore
from sightline.evaluate.transcripts import TranscriptReport
from sightline.generation.answer import Answer
from sightline.generation.fill import Filling
from sightline.generation.label import Label
from sightline.generation.output import Output
from sightline.generation.tag import Tagging
from sightline.generation.text import Perplexity
from sightline.generation.transcribe import Transcript
from sightline.glossary.files import GlossaryInput
from sightline.inspect.alignment import AlignmentHead
from sightline.inspect.heads import Head, HeadsByLayer
from sightline.inspect.record import AttentionRecord, Attribution, Inspection, Trace
from sightline.inspect.walk import WalkStep
from sightline.models.model import Model


class Verbs:
    """What there is to know about any model, and what some can do."""

    path: Path
    """The folder."""
    config: Any
    """How the network is made, and how it was trained where that is known."""
    network: Any
    """The torch module, in evaluation mode."""
    tokenizer: Any
    """Between texts and ids."""
    device: Any
    """Where the network computes."""
    about: Any
    """What is known of its training, a dictionary."""
    decode_config: Any
    """How it writes unless a call says otherwise."""
    alignment_head: Any
    """The attention that `align` reads, an `inspect.alignment.AlignmentHead`."""
    known_alignment_head: Any
    """The same where it was chosen in the folder; otherwise None."""

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        ...

    def settings(self, **settings: Any) -> Any:
        """How a call with these settings writes."""
        ...

    # --- Reads a text, writes another ---

    def translate(
        self,
        texts: Sequence[str],
        *,
        prefix: str = "",
        source_language: str = "",
        target_language: str = "",
        draft: Draft | str = "",
        glossary: "GlossaryInput | None" = None,
        **settings: Any,
    ) -> list[Translation]:
        """The translation of each text, in order.

        Args:
            texts: any strings.
            prefix: what every translation must begin with.
            source_language, target_language: to a model of many languages, as it has them ("de", "deu_Latn", "de_DE").
            draft: where guesses come from for a quicker answer.
            glossary: terms that translations keep to, of a model that was trained here: a file, or pairs of texts.
            **settings: how to search: `sightline.config.settings.SearchSettings`, or the pretrained
                model's own words for it,
                `sightline.generation.settings.GenerationSettings`; `beam_size=4`, `n_best=3` and their kin are both's.
        """
        ...

    def translate_lines(
        self, lines: Iterable[str], *, chunk_lines: int = 1000, workers: int = 1, **settings: Any
    ) -> Iterator[Translation]:
        """`translate` for a stream of any length, in constant memory."""
        ...

    def between(self, source_language: str = "", target_language: str = "") -> Model:
        """The same model of many languages for one pair of them, for all its verbs."""
        ...

    def restore(self, texts: Sequence[str], **settings: Any) -> list[Translation]:
        """Each text with words in the place of every `<mask>`."""
        ...

    # --- Writes ---

    def generate(self, prompts: Sequence[Any], /, **settings: Any) -> list[Output]:
        """What follows each prompt, a text or a conversation; of a model that rewrites, what it makes of each text."""
        ...

    def stream(self, text: str, /, **settings: Any) -> Iterator[str]:
        """What is written of one text, piece by piece while it is being written."""
        ...

    def perplexity(self, text: str, stride: int = 0, window: int = 0) -> Perplexity:
        """How well the model predicts a text of any length."""
        ...

    # --- Is asked about a text and its translation, or about what it reads ---

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """How probable the model finds each target as the translation of its source (natural logarithms)."""
        ...

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        head: AlignmentHead | None = None,
        reverse: Any = None,
    ) -> list[Links]:
        """The links (source word, target word) of each pair, counted from 0, as the model's attention has them."""
        ...

    def rank_heads(
        self, sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldLinks]
    ) -> dict[AlignmentHead, AlignmentScore]:
        """Every attention over the source with its alignment error rate on these pairs, the best first."""
        ...

    def attend(self, given: Any, /, *rest: Any, **options: Any) -> AttentionRecord:
        """Who looks at what in what the model reads and writes."""
        ...

    def attribute(self, src: str, /, tgt: str | None = None, **options: Any) -> Attribution:
        """How much each source word raised the probability of each target word."""
        ...

    def trace(self, given: Any, /, *rest: Any, **options: Any) -> Trace:
        """How an output came about, position by position."""
        ...

    def look_inside(self, given: Any, /, **options: Any) -> Inspection:
        """`attend` and `trace`; a notebook shows the whole page."""
        ...

    def walk(self, src: str, /, tgt: str | None = None, **options: Any) -> list[WalkStep]:
        """The numbers at each stop of a walk through a Transformer."""
        ...

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        """Silence attention heads, those and no others, until the next call or the end of a `with` statement."""
        ...

    def head_importance(self, given: Sequence[Any], /, *targets: Any, **options: Any) -> dict[Head, float]:
        """How much the loss would change with each head."""
        ...

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        """Write the model without these heads into a folder of its own; returns that."""
        ...

    # --- Reads a text, a picture, a sound, a series ---

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the likeliest pieces, the likeliest first."""
        ...

    def embed(
        self,
        texts: Sequence[str],
        pooling: str = "",
        normalize: bool | None = None,
        batch_size: int = 16,
        prompt: str | None = None,
    ) -> np.ndarray:
        """A vector for each text, float32 (texts, width)."""
        ...

    def classify(self, texts: Sequence[Any]) -> list[Classification]:
        """A label for each text, or pair of texts, with the probability of every label."""
        ...

    def tag(self, texts: Sequence[Any]) -> list[Tagging]:
        """What the words of each text are, and what they mark with its characters; a text may be a list of words."""
        ...

    def answer(self, questions: Sequence[tuple[str, str]], unanswerable: bool = False) -> list[Answer]:
        """The stretch of a text that answers each question, given with that text."""
        ...

    def label(self, picture: str | Path, top: int = 5) -> list[Label]:
        """The likeliest labels of an image file, the likeliest first."""
        ...

    def caption(self, pictures: Sequence[str | Path], **settings: Any) -> list[Output]:
        """What each image file shows, in words."""
        ...

    def transcribe(
        self,
        sound: str | Path,
        language: str = "",
        task: str = "transcribe",
        timestamps: bool = True,
        fallback: bool = False,
        condition: bool = False,
        **settings: Any,
    ) -> Transcript:
        """What is said in a sound file of any length."""
        ...

    def forecast(self, path: str | Path) -> list[float]:
        """The next values after the last row of a CSV file, in its own units."""
        ...

    def evaluate(
        self, paths: Sequence[str]
    ) -> (
        LabelReport
        | TagReport
        | AnswerReport
        | RetrievalReport
        | ForecastReport
        | LanguageReport
        | MaskedReport
        | TranscriptReport
        | CaptionReport
    ):
        """How good the model is on labelled files, a series, text that it predicts, recordings, or captions."""
        ...
