"""What a network can be trained for, a row each; nothing here is imported before its task is asked for.

A new task is one module beside this one, one row here and one page in `cards/`. What its words stand for:

- encoder, decoder, writes: its network has an encoder, an encoder and a decoder of ours, layers that write
- text: it learns a tokenizer from text; pieces: it predicts pieces, or classes
- lines, blocks: it reads texts line by line, or in blocks; running: nothing but blocks; masks: some of them hidden
- pictures: it reads pictures; classes: its head has outputs that follow from the data; pooled: of one state
- the name of a task: settings that are its alone
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A row; functions and classes are named as `module:name`."""

    noun: str  # of its models, in cards: "a ... model"
    files: str  # that --train takes
    reads: str  # words from above, whose settings mean something to it
    job: str = ""  # a `tasks.run.MakeJob`; "" = it starts from a published model only
    kind: str = ""  # of what a folder of ours does, made of a `Folder`; "" = it is written as a family's folder
    start: str = ""  # the `trainable.StartingPoint` of a published model; "" = it starts from none
    metrics: tuple[str, ...] = ()  # beside the loss, that "best" may look at


TASKS = {
    "translate": Task("translation", "two files, or one .tsv, .jsonl or hf:DATASET",
        "encoder decoder writes lines text pieces", "sightline.tasks.translation:translation_job",
        "sightline.models.translator:TrainedTranslator", "sightline.tasks.published:START", ("bleu",)),
    "denoise": Task("denoising", "plain text", "encoder decoder writes lines blocks text pieces",
        "sightline.tasks.denoising:denoising_job", "sightline.models.denoiser:Denoiser",
        "sightline.tasks.corruption:START", ("bleu",)),
    "classify": Task("classification", ".tsv of texts and labels", "encoder lines text pieces classes pooled",
        "sightline.tasks.classification:classification_job", "sightline.models.classifier:Classifier",
        "sightline.tasks.labelling:START", ("accuracy", "macro_f1")),
    "tag": Task("tagging", "words with tags, CoNLL's columns or .jsonl", "encoder lines text pieces classes",
        "sightline.tasks.tagging:tagging_job", "", "sightline.tasks.tagging:START", ("accuracy", "f1")),
    "answer": Task("answering", "questions as SQuAD has them, .json", "encoder lines text",
        "sightline.tasks.answering:answering_job", "", "sightline.tasks.answering:START", ("exact_match", "f1")),
    "embed": Task("vector", ".tsv of texts that belong together, and perhaps one that does not", "encoder lines text",
        "sightline.tasks.embedding:embedding_job", "", "sightline.tasks.embedding:START", ("accuracy", "mrr")),
    "forecast": Task("forecasting", ".csv", "encoder classes pooled",
        "sightline.tasks.forecasting:forecast_job", "sightline.models.forecaster:Forecaster"),
    "lm": Task("language", "text or .jsonl", "writes running blocks text pieces",
        "sightline.tasks.language_modelling:language_job", start="sightline.tasks.language_modelling:START"),
    "mlm": Task("masked language", "text or .jsonl", "encoder running blocks masks text pieces",
        "sightline.tasks.masked_modelling:masked_job", start="sightline.tasks.masked_modelling:START",
        metrics=("accuracy",)),
    "rtd": Task("replaced-token", "text or .jsonl", "encoder running blocks masks text pieces",
        "sightline.tasks.replaced_modelling:replaced_job", metrics=("accuracy",)),
    "plm": Task("permutation language", "text or .jsonl", "encoder running blocks text pieces",
        "sightline.tasks.permutation_modelling:permutation_job", start="sightline.tasks.permutation_modelling:START",
        metrics=("accuracy",)),
    "label": Task("picture", "folders of pictures, or .tsv of pictures and labels", "encoder pictures pieces classes",
        "sightline.tasks.pictures:picture_job", "", "sightline.tasks.pictures:START", ("accuracy", "macro_f1")),
    "transcribe": Task("speech", ".tsv of sounds and texts", "encoder writes pieces",
        start="sightline.tasks.transcription:START", metrics=("wer",)),
    "caption": Task("captioning", ".tsv of pictures and captions", "encoder pictures writes text pieces",
        "sightline.tasks.captioning:captioning_job", "", "sightline.tasks.captioning:START", ("bleu",)),
}  # fmt: skip


def those(word: str) -> tuple[str, ...]:
    """The tasks that are called by a word, or that it says something of."""
    return tuple(name for name, task in TASKS.items() if word == name or word in task.reads.split())
