"""Texts with labels: one `text TAB label` a line, instead of pairs of sentences.

Files are read, cut into pieces and cached as those of a translation are (`corpus.py`, `prepared.py`), a label standing
where the translation would; here are what labels add: which there are, and batches. A text longer than
`data.max_length` is cut, not dropped. Not here: what is learnt from it (`sightline.tasks.classification`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sightline.data.batch import OnDevices, Tokens, pad
from sightline.data.batching import Rows, plan_batches
from sightline.data.corpus import HF_PREFIX, Corpus, display_name, read_lines
from sightline.data.prepared import PreparedCorpus
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError, unknown

FORMAT = "write 'text TAB label' on every line"


def labelled_corpora(paths: Sequence[str]) -> list[Corpus]:
    """One corpus for each file; `-` is standard input.

    >>> [corpus.paths for corpus in labelled_corpora(["a.tsv", "b.tsv.gz"])]
    [('a.tsv',), ('b.tsv.gz',)]
    """
    for path in paths:
        if path != "-" and (path.startswith(HF_PREFIX) or not path.removesuffix(".gz").endswith(".tsv")):
            raise UserError(f"{path}: texts with labels come as .tsv or .tsv.gz files; {FORMAT}")
    return [Corpus((path,)) for path in paths]


def read_labelled(path: str) -> Iterator[tuple[str, str]]:
    """Texts and labels of a file; blanks around a label are no part of it.

    Raises:
        UserError: a line has no tab, more than one, or an empty label; or what `read_lines` raises.
    """
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        location = f"{display_name(path)}: line {number}"
        if len(columns) != 2:
            found = "no tab" if len(columns) < 2 else f"{len(columns) - 1} tabs"
            raise UserError(f"{location} has {found}; {FORMAT}")
        if not columns[1].strip():
            raise UserError(f"{location} has an empty label; {FORMAT}, or remove the line")
        yield columns[0], columns[1].strip()


def learn_labels(corpora: Sequence[Corpus]) -> list[str]:
    """The labels of the training files, sorted; two at least."""
    counts = Counter(label for corpus in corpora for _, label in read_labelled(corpus.paths[0]))
    if len(counts) < 2:
        names = ", ".join(map(str, corpora))
        raise UserError(f"{names}: every line has the label '{next(iter(counts))}'; a classifier needs two labels")
    return sorted(counts)


def check_labels(corpora: Sequence[Corpus], labels: Sequence[str]) -> None:
    """`UserError` with file and line of the first label that is not among `labels`."""
    for corpus in corpora:
        for number, (_, label) in enumerate(read_labelled(corpus.paths[0]), start=1):
            if label not in labels:
                raise UserError(f"{corpus}: line {number}: {unknown('label', label, labels)}; training has no such one")


@dataclass(frozen=True)
class LabelledBatch(OnDevices):
    """Texts, padded on the right, and the class of each."""

    src: Int[Tensor, "batch src_len"]
    src_mask: Bool[Tensor, "batch src_len"]  # True on real tokens
    labels: Int[Tensor, " batch"]
    n_real: int  # real tokens, end marks included

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

    def label(self, row: int) -> int:
        """The class of a text."""
        return self.labels.index(self.prepared.text(row)[1].strip())

    def load(self, tokenizer: Tokenizer, rows: Rows) -> LabelledBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        tokens, labels = [self.tokens(row) for row in chosen], [self.label(row) for row in chosen]
        return collate_labelled(tokens, labels, tokenizer.pad_id, tokenizer.eos_id)

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """Section 5.1 for texts alone: the batches of an epoch, drawn from (seed, epoch); the first starts largest."""
        return plan_batches(self.lengths, self.lengths, tokens_per_batch, seed, epoch, largest_first=epoch == 0)
