"""The [data] sections: from files to batches. `config.tasks` assigns them to tasks.

Sections of similar tasks share base classes, so that a setting is declared once.
"""

from dataclasses import dataclass

from headwise.config.setting import POSITIVE, RATE, SHARE, choice, setting
from headwise.errors import UserError


@dataclass(frozen=True)
class DataConfig:
    """A [data] section; this one has no settings (speech)."""

    def check(self) -> None:
        """`UserError` for values that contradict each other."""


@dataclass(frozen=True)
class TextData(DataConfig):
    """Text, for which a tokenizer is trained."""

    tokenizer: str = setting("", 'path of a tokenizer.json; "" = train one on the training text')
    subword: str = choice(("bpe", "unigram", "characters"), "kind of tokens; characters: for running text")
    vocab_size: int = setting(8000, "largest vocabulary, both languages together", POSITIVE)
    normalization: str = choice(("nfc", "nfkc", "none"), "Unicode normalization form")
    lowercase: bool = setting(False, "fold case before tokenization")


@dataclass(frozen=True)
class LineData(TextData):
    """Texts, one a line (classification, tagging, vectors)."""

    max_length: int = setting(256, "longest training text, tokens with end token; longer pairs are dropped", POSITIVE)


@dataclass(frozen=True)
class LabelData(LineData):
    """Texts with labels (classification)."""

    problem_type: str = choice(
        ("auto", "single_label_classification", "multi_label_classification", "regression"),
        "one label for a text, several, or a number; auto: as --init, else one",
    )


@dataclass(frozen=True)
class PairData(LineData):
    """Texts to read with texts to write."""

    max_length_ratio: float = setting(9.0, "longer to shorter side of a training pair; above: dropped; 0 = off")
    tokenizer_sample: int = setting(1_000_000, "most pairs to train a tokenizer on, sampled evenly; 0 = all")
    bpe_dropout: float = setting(0.0, "probability that a merge is skipped (arXiv:1910.13267)", RATE)
    bpe_dropout_sides: str = choice(("both", "source"), "sides of a pair with BPE-dropout")


@dataclass(frozen=True)
class TranslationData(PairData):
    """Translation."""

    source_dropout: float = setting(0.0, "probability that a source token is read as unknown", RATE)
    both_directions: float = setting(0.0, "first share of updates trained in both directions: BiT", RATE)
    weights: tuple[float, ...] = setting((), "sampling weight of each corpus; () = 1", POSITIVE)
    temperature: float = setting(1.0, "T: n pairs count n ** (1/T) (arXiv:1907.05019)", POSITIVE)
    shuffle_buffer: int = setting(200_000, "pairs of `stream:` shards shuffled at once, by all processes", POSITIVE)
    mix: str = setting("", "files of general pairs mixed in, against forgetting")
    mix_share: float = setting(0.5, "share of data.mix in the pairs of an epoch", RATE)


@dataclass(frozen=True)
class BlockData(TextData):
    """Running text in blocks (language models)."""

    block_length: int = setting(256, "tokens of running text read at once", POSITIVE)


@dataclass(frozen=True)
class MaskedData(BlockData):
    """Running text in blocks, some of it masked (BERT, ELECTRA)."""

    mask_share: float = setting(0.15, "share of the tokens of a block that are predicted", SHARE)
    whole_words: bool = setting(False, "mask whole words, not tokens")


@dataclass(frozen=True)
class MaskedLineData(MaskedData):
    """Running text in blocks, or sequences, one a line (BERT)."""

    reading: str = choice(
        ("auto", "lines", "blocks"), "lines: each line is a sequence; blocks: running text; auto: decided by the text"
    )


@dataclass(frozen=True)
class DenoisingData(PairData, BlockData):
    """Plain text that is restored: lines from scratch, blocks for a pretrained model."""


@dataclass(frozen=True)
class AnsweringData(LineData):
    """Questions on contexts."""

    overlap: int = setting(128, "tokens that two passages of a long context share")


@dataclass(frozen=True)
class PictureData(DataConfig):
    """Pictures."""

    flip: bool = setting(False, "flip pictures horizontally at random")
    shift: float = setting(0.0, "largest random shift of a picture, as a share of its side", RATE)


@dataclass(frozen=True)
class CaptionData(TextData, PictureData):
    """Pictures with captions."""


@dataclass(frozen=True)
class SeriesData(DataConfig):
    """Time series."""

    target: str = setting("", 'column to forecast; "" = the last')
    inputs: str = choice(("all", "target"), "columns the network reads")
    window: int = setting(96, "rows the network reads", POSITIVE)
    patch: int = setting(1, "rows of a position of the network (arXiv:2211.14730); data.window is a multiple", POSITIVE)
    scale_windows: bool = setting(False, "divide each window by its deviation, and multiply the forecast (RevIN)")
    horizon: int = setting(24, "rows to forecast", POSITIVE)
    season: int = setting(24, "rows after which the seasonal naive baseline repeats itself", POSITIVE)
    valid_share: float = setting(0.2, "share of the latest rows, which validate without a file", RATE)

    def check(self) -> None:
        """`UserError` for a baseline that needs more data than the network, and for a window of no whole patches."""
        if self.season > self.window:
            raise UserError(
                f"data.season = {self.season} is more than data.window = {self.window}: "
                "the naive baseline would use data that the network does not see"
            )
        if self.window % self.patch:
            raise UserError(
                f"data.window = {self.window} is not a multiple of data.patch = {self.patch}; change one of them"
            )
