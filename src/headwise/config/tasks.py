"""The tasks that a network can be trained for, one row each: names, data and metrics. Needs no torch.

A new task is a module in `headwise.pytorch.tasks`, a row here, a row in `headwise.pytorch.tasks.table` and a page in
`cards/`. If it saves its models in our layout, they have a row in `headwise.models.kinds`, too. Its
[data] section is a dataclass, for instance in `config.data`. The words of `reads` describe its network; settings of
[model] and [train] can be limited to tasks with one of these words:

- encoder: it has an encoder; decoder: an encoder and a decoder; writes: it generates a sequence
- tokens: it predicts tokens or classes; running: it reads blocks of running text
- pictures: it reads images; classes: the number of outputs follows from the data; pooled: it pools its states
- the name of a task: settings of this task only
"""

from dataclasses import dataclass

from headwise.config.data import (
    AnsweringData,
    BlockData,
    CaptionData,
    DataConfig,
    DenoisingData,
    LabelData,
    LineData,
    MaskedData,
    MaskedLineData,
    PictureData,
    SeriesData,
    TranslationData,
)


@dataclass(frozen=True)
class Task:
    """A row of the table."""

    noun: str  # kind of model, in model cards: "a ... model"
    files: str  # accepted by --train
    data: type[DataConfig]  # its [data] section
    reads: str  # words from above
    metrics: tuple[str, ...] = ()  # in addition to the loss, for `train.best_metric`
    tuning: str = ""  # recipe to fine-tune a pretrained model; "" = not supported


TASKS = {
    "translate": Task("translation", "two files, one .tsv, .jsonl or hf:DATASET, or stream:SHARDS", TranslationData,
        "encoder decoder writes tokens", ("bleu",), "tune"),
    "denoise": Task("denoising", "plain text", DenoisingData, "encoder decoder writes tokens", ("bleu",),
        "tune-denoise"),
    "classify": Task("classification", ".tsv of texts and labels", LabelData, "encoder tokens classes pooled",
        ("accuracy", "macro_f1"), "tune-labels"),
    "tag": Task("tagging", "words with tags, CoNLL's columns or .jsonl", LineData, "encoder tokens classes",
        ("accuracy", "f1"), "tune-tags"),
    "answer": Task("answering", "questions in SQuAD's format, .json", AnsweringData, "encoder", ("exact_match", "f1"),
        "tune-answers"),
    "embed": Task("vector", ".tsv of related texts, optionally with an unrelated one", LineData, "encoder",
        ("accuracy", "mrr"), "tune-vectors"),
    "forecast": Task("forecasting", ".csv", SeriesData, "encoder classes pooled"),
    "lm": Task("language", "text or .jsonl", BlockData, "writes running tokens", tuning="tune-lm"),
    "mlm": Task("masked language", "text or .jsonl", MaskedLineData, "encoder running tokens", ("accuracy",),
        "tune-mlm"),
    "rtd": Task("replaced-token", "text or .jsonl", MaskedData, "encoder running tokens", ("accuracy",)),
    "plm": Task("permutation language", "text or .jsonl", BlockData, "encoder running tokens", ("accuracy",),
        "tune-plm"),
    "label": Task("picture", "folders of pictures, or .tsv of pictures and labels", PictureData,
        "encoder pictures tokens classes", ("accuracy", "macro_f1"), "tune-pictures"),
    "transcribe": Task("speech", ".tsv of sounds and texts", DataConfig, "encoder writes tokens", ("wer",),
        "tune-speech"),
    "caption": Task("captioning", ".tsv of pictures and captions", CaptionData,
        "encoder pictures writes tokens", ("bleu",), "tune-captions"),
}  # fmt: skip


LOWER_IS_BETTER = ("loss", "wer", "mae", "perplexity")  # of the metrics of a validation


def tasks_with(word: str) -> tuple[str, ...]:
    """The names of the tasks with this word in `reads`, or with this name."""
    return tuple(name for name, task in TASKS.items() if word == name or word in task.reads.split())
