"""Labels of texts, or of pairs of texts, learnt by a published encoder: BERT, RoBERTa, DistilBERT, ELECTRA and so on.

A folder with a head for as many classes is trained on with it. Any other gets the head that `transformers` has for its
family, drawn as there; of what the folder holds, a pooler is its beginning (BERT), and other heads are left behind.
Objective, figures and trainer are those of a classifier of ours; what comes out is a folder in the layout it came in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.checkpoint.published import unread_tensors
from sightline.checkpoint.trained import RUN
from sightline.checkpoint.tuned import SameLayout
from sightline.config import RunConfig
from sightline.data.amount import parse_amount
from sightline.data.corpus import Corpus
from sightline.data.first_look import has_header
from sightline.data.labelled import (
    ReadTexts,
    check_labels,
    labelled_corpora,
    learn_labels,
    read_examples,
    read_labelled,
    texts_a_line,
)
from sightline.data.prepared import content, digest, spool
from sightline.errors import UserError
from sightline.families.registry import FAMILIES
from sightline.generation.label import class_names
from sightline.generation.models import ReadingModel
from sightline.generation.reading import TextReader
from sightline.network.halves import EncoderOnly
from sightline.network.parameters import parameters_of
from sightline.network.unfilled import build_unfilled, replace_parameter
from sightline.tasks.classification import ClassificationJob, check_length, classification_objective
from sightline.tasks.job import TrainRequest, file_names, held_out, hold_out, say
from sightline.tasks.trainable import StartingPoint, head_dropout, more_dropout, trainable
from sightline.tasks.translation import decided
from sightline.training.packed_encoder import packed_forward
from sightline.training.step import Objective

CLASSES = {  # how transformers calls the networks of a family, without what says their head
    "bert": "Bert",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}


@dataclass(frozen=True)
class LabellingJob(ClassificationJob):
    """See `sightline.tasks.job.Job`."""

    make: Callable[[], EncoderOnly] = field(kw_only=True)

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        compiled = self.config.train.compile
        return classification_objective(network if compiled else packed_forward(network), self.config.train)


def tuned_labels_job(request: TrainRequest, config: RunConfig, folder: Path) -> LabellingJob:
    """Read, check and tokenise everything that a published encoder learns labels from."""
    if request.special:
        raise UserError(f"--special {request.special[0]}: cannot be added to the vocabulary of --init {request.init}")
    check_length(config)
    base: ReadingModel = START.read(request.init)
    train, valid, n_texts, held = _files(request)
    names = learn_labels(train, n_texts)
    labels = _in_order(request, base, names)
    check_labels(valid, labels, n_texts)
    model = with_classes(base, labels)
    training, validating = (
        _read(files, model.reader, labels, n_texts, config.data.max_length) for files in (train, valid)
    )
    what = "pairs of texts" if n_texts == 2 else "texts"
    say(request, f"training on {len(training):,} {what} with {len(labels)} labels")
    known = known_head(base, model)
    say(request, _head(base, labels, known))
    about = {
        "corpus": {
            "train": file_names(request.train),
            "valid": file_names(request.valid),
            "texts": len(training),
            "key": _key(train, model.reader),
            "valid_key": _key(valid, model.reader),
            **held,
        },
        "labels": labels,
        "material": {
            "labels": ", ".join(labels),
            "training data": f"{', '.join(file_names(request.train))}: {len(training):,} {what}",
        },
        "network": _rows(model, config.model.dropout),
        "settings": RUN,
    }

    def make() -> EncoderOnly:
        return headed(base, model, known, config.model.dropout)

    train = replace(config.train, precision=decided(request, config, folder).precision)
    config = replace(config, model=replace(config.model, n_outputs=len(labels)), train=train)
    return LabellingJob(config, model.reader.side, about, training, validating, layout=SameLayout(model), make=make)


START = StartingPoint(
    tuned_labels_job, ReadingModel, "an encoder alone (BERT or one of its relatives)", "tune-labels", "max_length"
)


# --- Files ---


def _files(request: TrainRequest) -> tuple[list[Corpus], list[Corpus], int, dict[str, Any]]:
    """Training and validation files, how many texts a line has, and what config.json says of a part held out."""
    files = labelled_corpora(request.train)
    if (amount := parse_amount(request.valid)) and texts_a_line(files) == 2:
        raise UserError(f"--valid {amount.text}: of pairs of texts no share can be taken; name a file to validate on")
    parts = hold_out(request, files, labelled=True)
    if parts:
        return [parts.train], [parts.valid], 1, held_out(parts)
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
    return digest(reader.side.fingerprint, content(corpora)[0])


def _in_order(request: TrainRequest, model: ReadingModel, names: Sequence[str]) -> list[str]:
    """The labels, in the order of the head's classes where it knows them all; what else becomes of them is said."""
    if model.config.head != "text_class" or model.config.n_classes != len(names):
        return list(names)
    there = class_names(model.hf_config, model.config.n_classes)
    if set(there) == set(names):
        return list(there)
    say(request, f"the classes {', '.join(there)} of {request.init} are called {', '.join(names)} from now on")
    return list(names)


# --- The network ---


def with_classes(model: ReadingModel, labels: Sequence[str]) -> ReadingModel:
    """The model as its config.json would have it with a head for these classes; the network is still without."""
    kind = str(model.hf_config.get("model_type"))
    if kind not in CLASSES:
        raise UserError(
            f"{model.path}: no head for classes of texts is known for {kind}, only for {', '.join(CLASSES)}"
        )
    values = {key: value for key, value in model.hf_config.items() if key != "num_labels"} | {
        "architectures": [f"{CLASSES[kind]}ForSequenceClassification"],
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "problem_type": "single_label_classification",
    }
    return replace(model, config=FAMILIES[kind].config_from_hf(values), hf_config=values)


def known_head(base: ReadingModel, model: ReadingModel) -> dict[str, Tensor]:
    """The parameters of the head that the folder has: of one for texts those of the same shape, and a pooler."""
    unread, table = unread_tensors(base.path), FAMILIES[str(model.hf_config["model_type"])].table(model.config)
    found = {
        f"{name}.{part}": unread[f"{key}.{part}"].float()
        for key, name in table.items()
        for part in ("weight", "bias")
        if name.startswith("head.") and f"{key}.{part}" in unread
    }
    if base.config.head == "text_class":
        found |= {name: value for name, value in parameters_of(base.network).items() if name.startswith("head.")}
    shapes = {name: value.shape for name, value in build_unfilled(model.config).named_parameters()}
    return {name: value for name, value in found.items() if value.shape == shapes[name]}


def headed(base: ReadingModel, model: ReadingModel, known: Mapping[str, Tensor], dropout: float) -> EncoderOnly:
    """The body of `base` with the head of `model`, to be trained: of the head what is known, the rest drawn.

    As in `transformers`: normal with `initializer_range` (0.02), biases of zero.
    """
    network: EncoderOnly = build_unfilled(model.config)
    body = {name: value for name, value in parameters_of(base.network).items() if not name.startswith("head.")}
    given, deviation = {**body, **known}, float(model.hf_config.get("initializer_range") or 0.02)
    for name, parameter in list(network.named_parameters()):
        if name in given:
            replace_parameter(network, name, given[name])
        elif name.endswith("bias"):
            replace_parameter(network, name, torch.zeros(parameter.shape))
        else:
            replace_parameter(network, name, torch.randn(parameter.shape) * deviation)
    rates = head_dropout(more_dropout(model.hf_config, dropout), model.config, model.hf_config, dropout)
    return trainable(network, dropout, rates)


def _head(model: ReadingModel, labels: Sequence[str], known: Mapping[str, Tensor]) -> str:
    """What is said of the head."""
    name = model.path.absolute().name
    if "head.classes.weight" in known:
        return f"going on with the head of {name} for {len(labels)} classes"
    pooled = ", behind the pooler that was there" if "head.pool.weight" in known else ""
    left = "" if model.config.head == "none" else f", in the place of the one that it had ({model.config.head})"
    return f"a new head for {len(labels)} classes on {name}{pooled}{left}"


def _rows(model: ReadingModel, dropout: float) -> dict[str, str]:
    """What the model card says of the network."""
    config, stack = model.config, model.config.encoder
    assert stack
    rates = head_dropout(more_dropout(model.hf_config, dropout), config, model.hf_config, dropout)
    said = ", ".join(f"{name} {rate}" for name, rate in vars(rates).items() if rate)
    shape = f"d_model {stack.d_model}, d_ff {stack.d_ff}, {stack.n_heads} heads"
    return {
        "architecture": f"{config.family}: {stack.n_layers} layer{'s' * (stack.n_layers > 1)}, {shape}",
        "vocabulary": f"{config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        **({"dropout": f"beside {dropout}: {said}"} if said else {}),
    }
