"""What a network can be trained for, a row for each task: what it is called, reads and measures. Torch-free.

A new task is a module in `headwise.tasks`, a row here, a row in `headwise.tasks.table` and a page in `cards/`. Its
[data] section is a dataclass, in `config.data` or wherever its row finds it. The words of `reads` name what its network
has; settings of [model] and [train] can be for the tasks with one of these words:

- encoder, decoder, writes: its network has an encoder, an encoder and a decoder, layers that write
- tokens: it predicts tokens, or classes; running: it reads running text in blocks, and nothing else
- pictures: it reads pictures; classes: its head has outputs that follow from the data; pooled: of one state
- the name of a task: settings of this task only
"""

from dataclasses import dataclass

from headwise.config.data import (
    AnsweringData,
    BlockData,
    CaptionData,
    DataConfig,
    DenoisingData,
    LineData,
    MaskedData,
    PictureData,
    SeriesData,
    TranslationData,
)


@dataclass(frozen=True)
class Task:
    """A row of the table."""

    noun: str  # of its models, in cards: "a ... model"
    files: str  # that --train takes
    data: type[DataConfig]  # its [data] section
    reads: str  # words from above
    metrics: tuple[str, ...] = ()  # beside the loss, that `train.best_metric` may name
    tuning: str = ""  # the recipe that fine-tunes a pretrained model; "" = the task starts from none
    model: str = ""  # `module:class` of its models, made from a `Folder`; "" = saved in a Hugging Face layout


TASKS = {
    "translate": Task("translation", "two files, or one .tsv, .jsonl or hf:DATASET", TranslationData,
        "encoder decoder writes tokens", ("bleu",), "tune", "headwise.models.translator:Translator"),
    "denoise": Task("denoising", "plain text", DenoisingData, "encoder decoder writes tokens", ("bleu",),
        "tune-denoise", "headwise.models.denoiser:Denoiser"),
    "classify": Task("classification", ".tsv of texts and labels", LineData, "encoder tokens classes pooled",
        ("accuracy", "macro_f1"), "tune-labels", "headwise.models.classifier:Classifier"),
    "tag": Task("tagging", "words with tags, CoNLL's columns or .jsonl", LineData, "encoder tokens classes",
        ("accuracy", "f1"), "tune-tags"),
    "answer": Task("answering", "questions as SQuAD has them, .json", AnsweringData, "encoder", ("exact_match", "f1"),
        "tune-answers"),
    "embed": Task("vector", ".tsv of texts that belong together, and perhaps one that does not", LineData, "encoder",
        ("accuracy", "mrr"), "tune-vectors"),
    "forecast": Task("forecasting", ".csv", SeriesData, "encoder classes pooled",
        model="headwise.models.forecaster:Forecaster"),
    "lm": Task("language", "text or .jsonl", BlockData, "writes running tokens", tuning="tune-lm"),
    "mlm": Task("masked language", "text or .jsonl", MaskedData, "encoder running tokens", ("accuracy",),
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


def tasks_with(word: str) -> tuple[str, ...]:
    """The names of the tasks that have a word among `reads`, or are called by it."""
    return tuple(name for name, task in TASKS.items() if word == name or word in task.reads.split())
