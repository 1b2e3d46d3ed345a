"""Training a Whisper further on recordings with transcripts: cross-entropy of the next piece, word error rate.

The decoder is given what transcripts begin with (start, language, task, no timestamps) and learns the text and its end
mark: the loss of `WhisperForConditionalGeneration` with labels of -100 for what is given. A text begins with a blank,
as OpenAI's model writes it, but for languages without blanks. The encoder's sinusoids stay as they are, as in
`transformers`; everything is dropped that config.json has dropped, and spectrograms are masked where it says so
(`apply_spec_augment`). What comes out is a folder in the layout it came in. Not here: files and windows
(`headwise.data.speech`), and what is masked (`headwise.data.spec_augment`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from headwise.checkpoint.layout import read_json
from headwise.checkpoint.trained import GENERATION, RUN
from headwise.checkpoint.tuned import SameLayout
from headwise.checkpoint.vocabulary import marks_around
from headwise.config.settings import RunConfig
from headwise.data.spec_augment import Spans, SpecAugment
from headwise.data.speech import SpeechDataset, speech_dataset
from headwise.data.split import parse_validation_size
from headwise.errors import UserError
from headwise.evaluate.transcripts import check_jiwer, transcript_report
from headwise.families.keys import Keys
from headwise.generation.transcribe import TASKS, beginning_of, write_down
from headwise.models.speech import SpeechModel
from headwise.network.transformer import Transformer
from headwise.tasks.conditional_generation import TellingJob
from headwise.tasks.job import TrainRequest, base_names, notify
from headwise.tasks.pretrained import FineTuning, more_dropout, trainable

WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "my", "yue")  # as in OpenAI's tokenizer.py


@dataclass(frozen=True)
class TranscriptionJob(TellingJob):
    """See `headwise.tasks.job.Job`."""

    @property
    def size(self) -> int:
        """Recordings of a batch."""
        return max(1, self.config.train.tokens_per_batch // self.config.model.max_len)

    def network(self) -> Transformer:
        dropout = self.config.model.dropout
        network = trainable(self.model.network, dropout, more_dropout(self.model.hf_config, dropout))
        network.src_embeddings.positions.requires_grad_(False)
        return network

    def written(self, network: Transformer, memory: Float[Tensor, "windows positions d_model"]) -> list[str]:
        """What greedy search makes of recordings that the encoder has read, without timestamps."""
        model, config = self.model, self.model.generation.changed({"beam_size": 1, "n_best": 1, "sample": False})
        found = write_down(network, memory, self.valid.prompt, model.marks, config, False, model.max_len)
        return [model.tokenizer.decode(one.tokens).strip() for one in found]

    def judged(self, written: Sequence[str]) -> dict[str, float]:
        """The word error rate."""
        return {"wer": transcript_report([one.text for one in self.valid.recordings], written).wer}


# --- What it is made of


def transcription_job(request: TrainRequest, config: RunConfig, folder: Path) -> TranscriptionJob:
    """Read and check the data that a Whisper is fine-tuned on."""
    _refuse_strays(request)
    check_jiwer()
    model: SpeechModel = FINE_TUNING.read(request.init)
    language = language_of(model, request.source_language)
    train, valid = (_corpus(model, language, files) for files in (request.train, request.valid))
    train = _masked(train, model)
    minutes = f"{train.seconds / 60:,.1f} minutes"
    notify(request, f"training on {len(train):,} recordings, {minutes}; validating on {len(valid):,}")
    corpus = {
        "train": base_names(request.train),
        "valid": base_names(request.valid),
        "recordings": len(train),
        "seconds": round(train.seconds, 2),
        "key": train.key,
        "valid_key": valid.key,
    }
    about = {
        "corpus": corpus,
        "material": {"training data": f"{', '.join(corpus['train'])}: {len(train):,} recordings, {minutes}"},
        "network": _rows(model, config.model.dropout, language),
        "settings": RUN,
    }
    return TranscriptionJob(config, model.tokenizer, about, train, valid, SameLayout(model), model, show=request.show)


FINE_TUNING = FineTuning(
    transcription_job,
    SpeechModel,
    "Whisper",
)


def _refuse_strays(request: TrainRequest) -> None:
    if request.target_language:
        raise UserError("--target-language: what is said is written down in its own language; leave it out")
    if amount := parse_validation_size(request.valid):
        raise UserError(
            f"--valid {amount.text}: name a file of recordings; a share of the training files would have their speakers"
        )


def language_of(model: SpeechModel, asked: str) -> str:
    """The code of the language that is spoken: as asked, the only one, or what generation_config.json says."""
    known, path = model.marks.languages, model.path / GENERATION
    own = str((read_json(path) if path.is_file() else {}).get("language") or "").strip("<|>")
    code = asked or (own if own in known else next(iter(known)) if len(known) == 1 else "")
    if known and not code:
        raise UserError(f"--source-language is required: this model knows {', '.join(sorted(known))}")
    return code


def _masked(corpus: SpeechDataset, model: SpeechModel) -> SpeechDataset:
    try:
        return replace(corpus, masks=masks_of(model.hf_config, corpus.n_mels, corpus.frames))
    except UserError as error:
        raise UserError(f"{model.path}/{error}") from None


def masks_of(hf_config: Mapping[str, Any], n_mels: int, frames: int) -> SpecAugment | None:
    """What a config.json asks to mask of a spectrogram; `UserError` for spans that are longer than it."""
    k = Keys(hf_config)
    if not k.flag("apply_spec_augment", default=False):
        return None
    time, bands = (
        Spans(
            k.fraction(f"mask_{axis}_prob", default=share),
            k.size(f"mask_{axis}_length", default=10),
            k.size(f"mask_{axis}_min_masks", default=least, least=0),
        )
        for axis, share, least in (("time", 0.05, 2), ("feature", 0.0, 0))
    )
    for name, spans, size in (("mask_time_length", time, frames), ("mask_feature_length", bands, n_mels)):
        k.refuse(spans.share > 0 and spans.length > size, f"{name} = {spans.length}: a spectrogram has {size} there")
    return SpecAugment(time, bands)


def _corpus(model: SpeechModel, language: str, files: Any) -> SpeechDataset:
    beginning = beginning_of(model.marks, language, TASKS[0], timestamps=False)
    assert model.max_len
    sizes = model.config.n_mels, model.window, model.max_len
    return speech_dataset(files, pieces_of_text(model, language), beginning, model.marks.end, *sizes)


def pieces_of_text(model: SpeechModel, language: str) -> Callable[[str], list[int]]:
    """From a transcript to its ids, without the marks that the vocabulary puts around a text."""
    vocabulary, blank = model.tokenizer, "" if language in WITHOUT_BLANKS else " "
    before, behind = marks_around(vocabulary.encode(""), vocabulary.encode("a"))

    def pieces(text: str) -> list[int]:
        ids = vocabulary.encode(blank + text)
        return ids[before : len(ids) - behind]

    return pieces


def _rows(model: SpeechModel, dropout: float, language: str) -> dict[str, str]:
    """What the model card says of the network."""
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    shape = f"{stack.n_layers} + {config.decoder.n_layers} layers, d_model {stack.d_model}, {stack.n_heads} heads"
    more = more_dropout(model.hf_config, dropout)
    rates = ", ".join(f"{name} {rate}" for name, rate in vars(more).items() if rate)
    return {
        "architecture": f"{config.family}: {shape}, hears {stack.max_len / 50:g} s at once",
        "vocabulary": f"{config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        **({"language": language} if language else {}),
        **({"dropout": f"beside {dropout}: {rates}"} if rates else {}),
    }
