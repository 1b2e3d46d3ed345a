"""Texts with labels: one `text TAB label` a line, instead of pairs of sentences; `text TAB text TAB label` for pairs.

For a network of ours files are read, cut into pieces and cached as those of a translation are (`corpus.py`,
`prepared.py`), a label standing where the translation would; what a published one reads, marks included, is kept in
memory (`ReadTexts`). Here is what labels add: which there are, and batches. A text longer than `data.max_length` is
cut, not dropped. Not here: training on it (`sightline.tasks.classification`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sightline.data.arranging import Rows
from sightline.data.batch import OnDevices, Tokens, pad
from sightline.data.batching import plan_batches
from sightline.data.corpus import Corpus, RawLines, display_name, read_lines
from sightline.data.prepared import PreparedCorpus
from sightline.data.rows import HF_PREFIX
from sightline.data.side import Side
from sightline.errors import UserError, unknown

One = TypeVar("One")
HELD_OUT = 0  # seed of what is held out
FORMATS = {1: "write 'text TAB label' on every line", 2: "write 'text TAB text TAB label' on every line"}


@dataclass(frozen=True)
class Classification:
    """What a classifier makes of a text."""

    label: str  # the likeliest
    probability: float
    probabilities: dict[str, float]  # of every label

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def classification(labels: Sequence[str], probabilities: Sequence[float]) -> Classification:
    """The likeliest of `labels`.

    >>> classification(["no", "yes"], [0.25, 0.75]).label
    'yes'
    """
    by_label = dict(zip(labels, probabilities, strict=True))
    best = max(by_label, key=by_label.__getitem__)
    return Classification(best, by_label[best], by_label)


def labelled_corpora(paths: Sequence[str]) -> list[Corpus]:
    """One corpus for each file; `-` is standard input.

    >>> [corpus.paths for corpus in labelled_corpora(["a.tsv", "b.tsv.gz"])]
    [('a.tsv',), ('b.tsv.gz',)]
    """
    for path in paths:
        if path != "-" and (path.startswith(HF_PREFIX) or not path.removesuffix(".gz").endswith(".tsv")):
            raise UserError(f"{path}: texts with labels come as .tsv or .tsv.gz files; {FORMATS[1]}")
    return [Corpus((path,)) for path in paths]


def read_labelled(path: str, raw: RawLines | None = None) -> Iterator[tuple[str, str]]:
    """Texts and labels of a file, as `read_examples`."""
    return ((texts[0], label) for texts, label in read_examples(path, 1, raw))


def read_examples(path: str, n_texts: int, raw: RawLines | None = None) -> Iterator[tuple[tuple[str, ...], str]]:
    """The text or the two texts of each line, and their label; blanks around a label are no part of it.

    Raises:
        UserError: a line has no tab, too many or too few, or an empty label; or what `read_lines` raises.
    """
    for number, line in enumerate(read_lines(path, raw=raw), start=1):
        *texts, label = line.split("\t")
        location = f"{display_name(path)}: line {number}"
        if len(texts) != n_texts:
            found = f"{len(texts)} tab{'s' * (len(texts) > 1)}" if texts else "no tab"
            raise UserError(f"{location} has {found}; {FORMATS[n_texts]}")
        if not label.strip():
            raise UserError(f"{location} has an empty label; {FORMATS[n_texts]}, or remove the line")
        yield tuple(texts), label.strip()


def texts_a_line(corpora: Sequence[Corpus]) -> int:
    """How many texts there are before a label, 1 or 2, as the first line of the first file has it."""
    first = next(iter(read_lines(corpora[0].paths[0])))
    return 2 if first.count("\t") == 2 else 1


def count_labels(corpora: Sequence[Corpus], n_texts: int = 1) -> dict[str, int]:
    """The labels of the training files, sorted, and how often each stands there; two at least."""
    counts = Counter(label for corpus in corpora for _, label in read_examples(corpus.paths[0], n_texts))
    if len(counts) < 2:
        names = ", ".join(map(str, corpora))
        raise UserError(f"{names}: every line has the label '{next(iter(counts))}'; a classifier needs two labels")
    return dict(sorted(counts.items()))


def check_labels(corpora: Sequence[Corpus], labels: Sequence[str], n_texts: int = 1) -> None:
    """`UserError` with file and line of the first label that is not among `labels`."""
    for corpus in corpora:
        for number, (_, label) in enumerate(read_examples(corpus.paths[0], n_texts), start=1):
            if label not in labels:
                raise UserError(f"{corpus}: line {number}: {unknown('label', label, labels)}; training has no such one")


def parted(examples: Sequence[One], count: int) -> tuple[list[One], list[One]]:
    """All but `count` of the examples, drawn at random, always alike, and these."""
    taken = set(np.random.default_rng(HELD_OUT).permutation(len(examples))[:count].tolist())
    kept = [one for i, one in enumerate(examples) if i not in taken]
    return kept, [examples[i] for i in sorted(taken)]


@dataclass(frozen=True)
class LabelledBatch(OnDevices):
    """Texts, padded on the right, and the class of each."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    labels: Int[Tensor, "batch *each"]  # of a text; subclasses have several for each
    n_real: int  # real tokens, end marks included
    types: Int[Tensor, "batch src_len"] | None = None  # of two texts the one that a token belongs to (BERT)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a network reads."""
        return (self.src, self.src_mask) if self.types is None else (self.src, self.src_mask, self.types)

    @property
    def n_targets(self) -> int:
        """Texts: what the loss is a sum over."""
        return len(self.labels)

    @property
    def n_tokens(self) -> int:
        """Pieces: what speed is counted in."""
        return self.n_real

    @property
    def n_cells(self) -> int:
        """Cells of `src`."""
        return self.src.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        rows, src_len = self.src.shape
        return f"{rows} texts, {src_len} pieces long"


def collate_labelled(texts: Sequence[Tokens], labels: Sequence[int], pad_id: int, eos_id: int) -> LabelledBatch:
    """Tensors of some texts in ids, without their end marks, and their classes.

    >>> batch = collate_labelled([[5, 6], [8]], [1, 0], pad_id=0, eos_id=2)
    >>> batch.src.tolist(), batch.labels.tolist(), batch.n_real
    ([[5, 6, 2], [8, 2, 0]], [1, 0], 5)
    """
    src, src_mask = pad(texts, pad_id, last=eos_id)
    labelled = torch.tensor(labels, dtype=torch.int64)
    return LabelledBatch(torch.from_numpy(src), torch.from_numpy(src_mask), labelled, int(src_mask.sum()))


@dataclass(frozen=True)
class LabelledCorpus:
    """A prepared corpus whose target texts are labels."""

    prepared: PreparedCorpus
    labels: tuple[str, ...]  # class i is labels[i]
    max_length: int  # longest text in pieces with its end mark; what is beyond is cut

    def __len__(self) -> int:
        return len(self.prepared)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Pieces of every text as it is read, the end mark included."""
        return np.minimum(self.prepared.src_lengths, self.max_length)

    def tokens(self, row: int) -> Tokens:
        """Ids of a text, without its end mark."""
        return self.prepared.src(row)[: self.max_length - 1]

    @property
    def classes(self) -> list[int]:
        """The class of every text."""
        return [self.label(row) for row in range(len(self))]

    def label(self, row: int) -> int:
        """The class of a text."""
        return self.labels.index(self.prepared.text(row)[1].strip())

    def load(self, tokenizer: Side, rows: Rows) -> LabelledBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        tokens, labels = [self.tokens(row) for row in chosen], [self.label(row) for row in chosen]
        return collate_labelled(tokens, labels, tokenizer.pad_id, tokenizer.eos_id)

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """Section 5.1 for texts alone: the batches of an epoch, drawn from (seed, epoch); the first starts largest."""
        return plan_batches(self.lengths, self.lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)


@dataclass(frozen=True)
class MarkedTexts:
    """A text, or two behind one another, as a published network reads them: with all their marks."""

    ids: Tokens
    n_first: int  # those that belong to the first text
    n_apart: int = 0  # the last of them: marks of neither text (XLNet)

    def __len__(self) -> int:
        return len(self.ids)


def collate_marked(rows: Sequence[MarkedTexts], labels: Sequence[Any], pad_id: int, typed: bool) -> LabelledBatch:
    """Tensors of such texts and their classes, one each or several.

    `typed`: the network is told which of two texts a token belongs to, or that it belongs to neither.

    >>> batch = collate_marked([MarkedTexts([8, 5, 2, 6, 2], 3), MarkedTexts([8, 5, 2], 3)], [1, 0], 0, typed=True)
    >>> batch.src.tolist(), batch.types.tolist()
    ([[8, 5, 2, 6, 2], [8, 5, 2, 0, 0]], [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    """
    sizes = np.array([(len(row), row.n_first, len(row) - row.n_apart) for row in rows])
    lengths, firsts, texts = sizes.T[..., None]
    places = np.arange(lengths.max())
    mask = places < lengths
    src = np.full(mask.shape, pad_id, dtype=np.int64)
    src[mask] = np.concatenate([row.ids for row in rows])
    kinds = mask * ((places >= firsts) + (places >= texts).astype(np.int64))
    types = torch.from_numpy(kinds) if typed else None
    labelled = torch.tensor(labels, dtype=torch.int64)
    return LabelledBatch(torch.from_numpy(src), torch.from_numpy(mask), labelled, int(mask.sum()), types)


@dataclass(frozen=True)
class ReadTexts:
    """Labelled texts as a published network reads them, in memory."""

    rows: Sequence[MarkedTexts]
    classes: Sequence[Any]  # of each: here a number
    labels: tuple[str, ...]  # class i is labels[i]
    typed: bool  # as of `collate_marked`

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, tokenizer: Side, rows: Rows) -> LabelledBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        return collate_marked(
            [self.rows[i] for i in chosen], [self.classes[i] for i in chosen], tokenizer.pad_id, self.typed
        )

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """As of `LabelledCorpus`."""
        lengths = np.array([len(row) for row in self.rows])
        return plan_batches(lengths, lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)
