"""Training text classifiers on labelled texts, from scratch or from a pretrained encoder."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config.model import longest_sequence
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.loss import Loss, label_loss
from headwise.core.train import Objective
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.evaluate.baselines import INSTALL, Baseline, tfidf_labels
from headwise.evaluate.classes import label_report
from headwise.models.encoding.classifier import Classifier
from headwise.models.encoding.encoder import EncoderModel
from headwise.models.encoding.label import NUMBER, ONE, SEVERAL
from headwise.models.encoding.reading import TextReader
from headwise.models.language.language_model import XLNetModel
from headwise.models.model import Model
from headwise.pytorch.architectures.registry import build_pooled_network
from headwise.pytorch.architectures.xlnet import XLNetClassifier, XLNetShape
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.xlnet import XLNetLayout
from headwise.pytorch.data.labelled import LabelledBatch, LabelledCorpus, LabelledDataset
from headwise.pytorch.data.stream import BatchShare, EndlessStream, batches_of_epochs
from headwise.pytorch.models.classifier import logits_of
from headwise.pytorch.tasks.automatic import with_precision
from headwise.pytorch.tasks.heads import (
    TEXT_CLASSIFIERS,
    describe_run,
    head_message,
    labels_in_order,
    network_with_head,
    pretrained_head,
    with_head,
)
from headwise.pytorch.tasks.job import (
    Job,
    TrainRequest,
    base_names,
    choose_tokenizer,
    held_out_entry,
    hold_out,
    notify,
)
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs, xlnet_model_settings
from headwise.pytorch.tasks.problems import (
    check_one_label,
    names_of_outputs,
    problem_baseline,
    problem_figures,
    problem_objective,
    problem_of,
    problem_outputs,
    read_targets,
    settings_for_problem,
    target_rows,
)
from headwise.pytorch.training.packed import forward_of
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.text.files.corpus import Corpus
from headwise.text.files.file_checks import has_header
from headwise.text.files.labelled_texts import (
    check_label_column,
    check_labels,
    count_labels,
    labelled_corpora,
    read_examples,
    read_labelled,
    texts_per_line,
)
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared.file_hashes import hash_corpora, short_hash
from headwise.text.prepared.prepared import prepare, spool, train_tokenizer

TFIDF = "TF-IDF and logistic regression"
LabelledText = tuple[str, str]  # a text, or both texts of a pair with a space between them, and its label
PROBLEM_WORDS = {ONE: "{} labels", SEVERAL: "{} labels, several for a text", NUMBER: "a number each"}


@dataclass(frozen=True)
class ClassificationJob(Job):
    """Labels for texts."""

    train: LabelledCorpus | LabelledDataset
    valid: LabelledCorpus | LabelledDataset
    examples: Callable[[], list[list[LabelledText]]] | None = field(default=None, kw_only=True)  # of both parts

    @property
    def baseline(self) -> dict[str, float]:
        return label_baseline(self.valid.classes, len(self.train.labels))

    def simple_baseline(self) -> Baseline | None:
        """A linear classifier of words."""
        if not self.examples:
            return None
        train, valid = self.examples()
        true = [label for _, label in valid]
        found = tfidf_labels([text for text, _ in train], [label for _, label in train], [text for text, _ in valid])
        if found is None:
            return Baseline(TFIDF, missing=f"needs scikit-learn: {INSTALL}")
        report = label_report(true, found)
        figures = {"accuracy": report.accuracy, "macro_f1": report.macro_f1}
        return Baseline(TFIDF, figures, "a pretrained model (--init) or more texts would help")

    def network(self) -> nn.Module:
        return build_pooled_network(self.config.model)

    def objective(self, network: nn.Module) -> Objective:
        return classification_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[LabelledBatch]:
        train, seed, tokens = self.train, self.config.train.seed, self.config.train.tokens_per_batch

        def load(rows: Any) -> LabelledBatch:
            return train.load(self.tokenizer, rows)

        return EndlessStream(
            lambda start: batches_of_epochs(lambda epoch: train.plan(tokens, seed, epoch), load, start), state, share
        )

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """See `label_outputs`."""
        plan = self.valid.plan(self.config.train.tokens_per_batch, seed=0, epoch=0)
        batches = (self.valid.load(self.tokenizer, rows) for rows in shard.of(plan))
        return label_outputs((logits_of(network, [batch], device), batch.labels) for batch in batches)

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Cross-entropy without smoothing, accuracy and macro F1 of the whole validation set."""
        return label_figures(self.valid.labels, outputs)


def classification_job(request: TrainRequest, config: RunConfig, folder: Path) -> ClassificationJob:
    """Read, check and tokenise the data for training from scratch."""
    check_length(config)
    check_one_label(config)
    files = labelled_corpora(request.train)
    check_label_column(files)
    parts = hold_out(request, files, labelled=True)
    files, valid = spool(files), [] if parts else spool(labelled_corpora(request.valid))
    _warn_of_headers(request, files + valid)
    train, valid = (parts.train, [parts.valid]) if parts else (files, valid)
    labels = [*(counts := count_labels(train))]
    warn_of_rare_labels(request, counts)
    check_labels(valid, labels)
    tokenizer = choose_tokenizer(
        request,
        config,
        folder,
        lambda: train_tokenizer(train, config.data, request.special, sources_only=True),
    )
    training, validating = (
        LabelledCorpus(
            prepare(files, tokenizer, config.data, progress=request.show, clean=False),
            tuple(labels),
            config.data.max_length,
        )
        for files in (train, valid)
    )
    notify(request, f"training on {len(training):,} texts with {len(labels)} labels")
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, n_outputs=len(labels))
    about = {
        "corpus": {
            "train": base_names(request.train),
            "valid": base_names(request.valid),
            "texts": len(training),
            "key": training.prepared.key,
            "valid_key": validating.prepared.key,
            **held_out_entry(parts),
        },
        "labels": labels,
        "material": {
            "vocabulary": f"{model.vocab_size:,} {config.data.subword} tokens",
            "labels": ", ".join(labels),
            "training data": f"{', '.join(base_names(request.train))}: {len(training):,} texts",
        },
    }
    texts = partial(_examples, (train, valid))
    return ClassificationJob(replace(config, model=model), tokenizer, about, training, validating, examples=texts)


def _examples(parts: Sequence[Sequence[Corpus]], n_texts: int = 1) -> list[list[LabelledText]]:
    """The labelled texts of the training and the validation files."""
    read = ((read_examples(corpus.paths[0], n_texts) for corpus in corpora) for corpora in parts)
    return [[(" ".join(texts), label) for rows in files for texts, label in rows] for files in read]


def _warn_of_headers(request: TrainRequest, corpora: Iterable[Corpus]) -> None:
    for corpus in corpora:
        if has_header(list(islice(read_labelled(corpus.paths[0]), 1))):
            notify(request, f"{corpus}: line 1 looks like a header and would be used as a labelled text; remove it")


def warn_of_rare_labels(request: TrainRequest, counts: Mapping[str, int], what: str = "label") -> None:
    """Warn of labels with a single training example."""
    rare = [label for label, count in counts.items() if count == 1]
    if rare:
        named = ", ".join(f"'{label}'" for label in rare[:5]) + ", ..." * (len(rare) > 5)
        notify(request, f"only one training example, which is too few: {what} {named}; check the spelling")


def check_length(config: RunConfig) -> None:
    """`UserError` if `data.max_length` exceeds the limit of the network."""
    limit = longest_sequence(config.model)
    if limit is not None and config.data.max_length > limit:
        raise UserError(
            f"model.max_len = {limit} is less than data.max_length = {config.data.max_length}, to which texts are "
            "truncated; change one of them"
        )


def classification_objective(network: nn.Module, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of the labels."""
    forward = forward_of(network, train.compile)

    def objective(batch: LabelledBatch) -> Loss:
        return label_loss(forward(batch), batch.labels, train.label_smoothing)

    return objective


def label_outputs(batches: Iterable[tuple[Float[Tensor, "texts classes"], Int[Tensor, " texts"]]]) -> Outputs:
    """For each batch of logits and labels the loss without smoothing, the predicted classes and the true ones."""
    outputs: Outputs = {"loss": [], "predicted": [], "true": []}
    for logits, labels in batches:
        scores = logits.float().cpu()
        outputs["loss"].append(label_loss(scores, labels).objective.item())
        outputs["predicted"].append(scores.argmax(1).tolist())
        outputs["true"].append(labels.tolist())
    return outputs


def label_baseline(classes: Iterable[Hashable], n_labels: int) -> dict[str, float]:
    """Loss of the uniform distribution, and accuracy of the most frequent class of the validation set.

    >>> label_baseline([0, 1, 1, 1], n_labels=2)
    {'loss': 0.693..., 'accuracy': 0.75}
    """
    counts = Counter(classes)
    return {"loss": math.log(n_labels), "accuracy": max(counts.values()) / counts.total()}


def label_figures(names: Sequence[str], outputs: Outputs) -> dict[str, float]:
    """Loss, accuracy and macro F1 of `label_outputs`."""
    predicted, true = (
        [names[i] for classes in outputs[key] for i in map(int, classes)] for key in ("predicted", "true")
    )
    report = label_report(true, predicted)
    return {"loss": sum(outputs["loss"]) / len(true), "accuracy": report.accuracy, "macro_f1": report.macro_f1}


@dataclass(frozen=True)
class EncoderHeadJob(ClassificationJob):
    """Labels by a head on a pretrained encoder."""

    make: Callable[[], EncoderOnly | XLNetClassifier] = field(kw_only=True)

    def network(self) -> nn.Module:
        return self.make()


@dataclass(frozen=True)
class ProblemJob(EncoderHeadJob):
    """A job with several labels for a text, or a number; see `headwise.pytorch.tasks.job.Job`."""

    problem: str = field(kw_only=True)  # SEVERAL or NUMBER

    @property
    def baseline(self) -> dict[str, float]:
        return problem_baseline(self.valid.classes, self.problem)

    def objective(self, network: nn.Module) -> Objective:
        return problem_objective(network, self.config.train, self.problem)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """See `problem_outputs`."""
        plan = self.valid.plan(self.config.train.tokens_per_batch, seed=0, epoch=0)
        batches = (self.valid.load(self.tokenizer, rows) for rows in shard.of(plan))
        return problem_outputs(((logits_of(network, [one], device), one.labels) for one in batches), self.problem)

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The loss, and the metrics of `evaluate`."""
        return problem_figures(self.valid.labels, outputs, self.problem)


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> EncoderHeadJob:
    """Read, check and tokenise the data that a pretrained encoder is fine-tuned on."""
    check_length(config)
    base: EncoderModel | Classifier | XLNetModel = FINE_TUNING.read(request.init)
    problem = problem_of(config, base)
    config = settings_for_problem(config, problem)
    train, valid, n_texts, held = _files(request, problem)
    labels = _labels(request, base, (train, valid), n_texts, problem)
    model = with_head(base, "text_class", labels, problem)
    training, validating = (
        _read(files, model.reader, labels, n_texts, config.data.max_length, problem) for files in (train, valid)
    )
    what = "pairs of texts" if n_texts == 2 else "texts"
    notify(request, f"training on {len(training):,} {what} with {PROBLEM_WORDS[problem].format(len(labels))}")
    known = pretrained_head(base, model)
    notify(request, head_message(base, "a number" if problem == NUMBER else f"{len(labels)} classes", known))
    corpus = {"texts": len(training), "key": _key(train, model.reader), "valid_key": _key(valid, model.reader)}
    amount = f"{len(training):,} {what}"
    about = describe_run(request, model, config.model.dropout, amount, corpus, held, labels)

    def make() -> EncoderOnly | XLNetClassifier:
        return network_with_head(base, model, known, config.model.dropout)

    config = with_precision(request, config, folder)
    config = replace(config, model=replace(config.model, n_outputs=len(labels)))
    layout = (XLNetLayout if isinstance(model.config, XLNetShape) else SameLayout)(model)
    examples = partial(_examples, (train, valid), n_texts)
    job = partial(EncoderHeadJob, examples=examples) if problem == ONE else partial(ProblemJob, problem=problem)
    return job(config, model.reader.tokenizer, about, training, validating, layout=layout, make=make)


FINE_TUNING = FineTuning(
    fine_tuning_job,
    (EncoderModel, Classifier, XLNetModel),
    TEXT_CLASSIFIERS,
    "max_length",
    settings_of=xlnet_model_settings,
    heads=("none", "masked", "replaced", "token_class", "span", "text_class", "score", "permutation"),
)
JOBS = TaskJobs(classification_job, FINE_TUNING)


def _labels(
    request: TrainRequest, base: Model, files: tuple[list[Corpus], list[Corpus]], n_texts: int, problem: str
) -> list[str]:
    """The name of each output, after the training files; `UserError` for another one in the validation files."""
    train, valid = files
    if problem != ONE:
        return labels_in_order(request, base, "text_class", names_of_outputs(train, n_texts, problem, base))
    counts = count_labels(train, n_texts)
    warn_of_rare_labels(request, counts)
    labels = labels_in_order(request, base, "text_class", [*counts])
    check_labels(valid, labels, n_texts)
    return labels


def _files(request: TrainRequest, problem: str) -> tuple[list[Corpus], list[Corpus], int, dict[str, Any]]:
    """Training and validation files, the number of texts per line, and the entry of config.json for held-out lines."""
    files = labelled_corpora(request.train)
    if problem != NUMBER:
        check_label_column(files)
    amount = parse_validation_size(request.valid)
    if amount and (problem != ONE or texts_per_line(files) == 2):
        what = "pairs of texts" if problem == ONE else f"texts for {problem}"
        raise UserError(f"--valid {amount.text}: {what} cannot be held out; name a validation file")
    parts = hold_out(request, files, labelled=True)
    if parts:
        return parts.train, [parts.valid], 1, held_out_entry(parts)
    files, valid = spool(files), spool(labelled_corpora(request.valid))
    n_texts = texts_per_line(files)
    _warn_of_headers(request, [*files, *valid] if n_texts == 1 and problem == ONE else [])
    return files, valid, n_texts, {}


def _read(
    corpora: Sequence[Corpus], reader: TextReader, labels: Sequence[str], n_texts: int, longest: int, problem: str
) -> LabelledDataset:
    if problem != ONE:
        given = read_targets(corpora, n_texts, problem, labels)
        rows = reader.read([texts for texts, _ in given], longest)
        targets = target_rows((target for _, target in given), labels, problem)
        return LabelledDataset(rows, targets, tuple(labels), reader.typed)
    examples = [row for corpus in corpora for row in read_examples(corpus.paths[0], n_texts)]
    rows = reader.read([texts for texts, _ in examples], longest)
    numbers = {label: i for i, label in enumerate(labels)}
    return LabelledDataset(rows, [numbers[label] for _, label in examples], tuple(labels), reader.typed)


def _key(corpora: Sequence[Corpus], reader: TextReader) -> str:
    return short_hash(reader.tokenizer.fingerprint, [one.key for one in hash_corpora(corpora)])
