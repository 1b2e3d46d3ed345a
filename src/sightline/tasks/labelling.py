"""Labels of texts, or of pairs of texts, learnt by a published encoder: BERT, RoBERTa, DistilBERT, ELECTRA, XLNet.

Objective, figures and trainer are those of a classifier of ours; what comes out is a folder in the layout it came in.
Not here: the head (`heads`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from sightline.architectures.xlnet import XLNetClassifier
from sightline.checkpoint.tuned import SameLayout
from sightline.checkpoint.xlnet import XLNetLayout
from sightline.config.settings import RunConfig
from sightline.data.amount import parse_amount
from sightline.data.content import content, digest
from sightline.data.corpus import Corpus
from sightline.data.first_look import has_header
from sightline.data.labelled import (
    ReadTexts,
    check_labels,
    count_labels,
    labelled_corpora,
    read_examples,
    read_labelled,
    texts_a_line,
)
from sightline.data.prepared import spool
from sightline.errors import UserError
from sightline.generation.reading import TextReader
from sightline.models.reading import ReadingModel
from sightline.models.xlnet import LabellingXLNet, XLNetModel
from sightline.network.halves import EncoderOnly
from sightline.tasks.classification import (
    ClassificationJob,
    check_length,
    classification_objective,
    say_seen_once,
)
from sightline.tasks.heads import LABELLED, about_run, headed, in_order, known_head, said_of_head, with_head
from sightline.tasks.job import TrainRequest, held_out, hold_out, say
from sightline.tasks.trainable import StartingPoint
from sightline.tasks.translation import decided
from sightline.tasks.xlnet import in_words
from sightline.training.packed_encoder import packed_forward
from sightline.training.step import Objective


@dataclass(frozen=True)
class LabellingJob(ClassificationJob):
    """See `sightline.tasks.job.Job`."""

    make: Callable[[], EncoderOnly | XLNetClassifier] = field(kw_only=True)

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        compiled = self.config.train.compile
        return classification_objective(network if compiled else packed_forward(network), self.config.train)


def tuned_labels_job(request: TrainRequest, config: RunConfig, folder: Path) -> LabellingJob:
    """Read, check and tokenise everything that a published encoder learns labels from."""
    check_length(config)
    base: ReadingModel | XLNetModel = START.read(request.init)
    train, valid, n_texts, held = _files(request)
    counts = count_labels(train, n_texts)
    say_seen_once(request, counts)
    labels = in_order(request, base, "text_class", [*counts])
    check_labels(valid, labels, n_texts)
    model = with_head(base, "text_class", labels)
    training, validating = (
        _read(files, model.reader, labels, n_texts, config.data.max_length) for files in (train, valid)
    )
    what = "pairs of texts" if n_texts == 2 else "texts"
    say(request, f"training on {len(training):,} {what} with {len(labels)} labels")
    known = known_head(base, model)
    say(request, said_of_head(base, f"{len(labels)} classes", known))
    corpus = {"texts": len(training), "key": _key(train, model.reader), "valid_key": _key(valid, model.reader)}
    amount = f"{len(training):,} {what}"
    about = about_run(request, model, config.model.dropout, amount, corpus, held, labels)

    def make() -> EncoderOnly | XLNetClassifier:
        return headed(base, model, known, config.model.dropout)

    train = replace(config.train, precision=decided(request, config, folder).precision)
    config = replace(config, model=replace(config.model, n_outputs=len(labels)), train=train)
    layout = (XLNetLayout if isinstance(model, LabellingXLNet) else SameLayout)(model)
    return LabellingJob(config, model.reader.side, about, training, validating, layout=layout, make=make)


START = StartingPoint(
    tuned_labels_job, (ReadingModel, XLNetModel), LABELLED, "tune-labels", "max_length", words=in_words
)


# --- Files ---


def _files(request: TrainRequest) -> tuple[list[Corpus], list[Corpus], int, dict[str, Any]]:
    """Training and validation files, how many texts a line has, and what config.json says of a part held out."""
    files = labelled_corpora(request.train)
    if (amount := parse_amount(request.valid)) and texts_a_line(files) == 2:
        raise UserError(f"--valid {amount.text}: of pairs of texts no share can be taken; name a file to validate on")
    parts = hold_out(request, files, labelled=True)
    if parts:
        return parts.train, [parts.valid], 1, held_out(parts)
    files, valid = spool(files), spool(labelled_corpora(request.valid))
    n_texts = texts_a_line(files)
    for corpus in [*files, *valid] if n_texts == 1 else []:
        if has_header(list(islice(read_labelled(corpus.paths[0]), 1))):
            say(request, f"{corpus}: line 1 looks like a header and would be learnt as a text; remove it")
    return files, valid, n_texts, {}


def _read(
    corpora: Sequence[Corpus], reader: TextReader, labels: Sequence[str], n_texts: int, longest: int
) -> ReadTexts:
    examples = [row for corpus in corpora for row in read_examples(corpus.paths[0], n_texts)]
    rows = reader.read([texts for texts, _ in examples], longest)
    numbers = {label: i for i, label in enumerate(labels)}
    return ReadTexts(rows, [numbers[label] for _, label in examples], tuple(labels), reader.typed)


def _key(corpora: Sequence[Corpus], reader: TextReader) -> str:
    return digest(reader.side.fingerprint, [one.key for one in content(corpora)])
