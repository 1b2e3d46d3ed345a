"""Fine-tuning Whisper on recordings with transcripts: cross-entropy of the next token, word error rate.

The decoder reads the start tokens (start, language, task, no timestamps) and predicts the text and its end token, the
loss of `WhisperForConditionalGeneration` with label -100 for the start tokens. A text begins with a space, as in
OpenAI's transcripts, except in languages without spaces. The encoder's sinusoids are frozen, as in `transformers`.
Dropout and masking of spectrograms (`apply_spec_augment`) follow config.json. See `headwise.pytorch.data.speech` for
files and windows, and `headwise.pytorch.data.spec_augment` for masking.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from headwise.config.settings import RunConfig
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.evaluate.transcripts import check_jiwer, transcript_report
from headwise.families.keys import Keys
from headwise.models.speech.speech_model import SpeechModel
from headwise.models.speech.transcribe import TASKS, start_tokens
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.spec_augment import Spans, SpecAugment
from headwise.pytorch.data.speech import SpeechDataset, speech_dataset
from headwise.pytorch.models.speech import transcribe_windows
from headwise.pytorch.tasks.conditional_generation import ConditionalGenerationJob
from headwise.pytorch.tasks.job import TrainRequest, base_names, notify
from headwise.pytorch.tasks.pretrained import (
    FineTuning,
    TaskJobs,
    dropout_row,
    extra_dropout_rates,
    trainable_network,
    vocabulary_row,
)
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.checkpoint.trained import GENERATION, RUN
from headwise.runtime.tokenizers.vocabulary import marks_around
from headwise.text.files.split import parse_validation_size

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")  # as in OpenAI's tokenizer.py


@dataclass(frozen=True)
class TranscriptionJob(ConditionalGenerationJob):
    """Transcripts of recordings."""

    @property
    def size(self) -> int:
        """Recordings per batch."""
        return max(1, self.config.train.tokens_per_batch // self.config.model.max_len)

    @property
    def first(self) -> tuple[str, str]:
        recording = self.valid.recordings[0]
        return Path(recording.sound).name, recording.text

    def network(self) -> Transformer:
        network = trainable_network(self.model, self.config.model.dropout)
        network.src_embeddings.positions.requires_grad_(False)
        return network

    def generate_texts(self, network: Transformer, memory: Float[Tensor, "windows positions d_model"]) -> list[str]:
        """Greedy search for encoded recordings, without timestamps."""
        model, config = self.model, self.model.generation.changed({"beam_size": 1, "n_best": 1, "sample": False})
        found = transcribe_windows(network, memory, self.valid.prompt, model.special_tokens, config, model.max_len)
        return [model.tokenizer.decode(one.tokens).strip() for one in found]

    def score_texts(self, texts: Sequence[str]) -> dict[str, float]:
        """The word error rate."""
        return {"wer": transcript_report([one.text for one in self.valid.recordings], texts).wer}


def transcription_job(request: TrainRequest, config: RunConfig, folder: Path) -> TranscriptionJob:
    """Read and check the data that a Whisper is fine-tuned on."""
    _check_options(request)
    check_jiwer()
    model: SpeechModel = FINE_TUNING.read(request.init)
    language = spoken_language(model, request.source_language)
    train, valid = (_corpus(model, language, files) for files in (request.train, request.valid))
    train = _with_masking(train, model)
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
    return TranscriptionJob(config, model.tokenizer, about, train, valid, model, request.show, layout=SameLayout(model))


FINE_TUNING = FineTuning(transcription_job, SpeechModel, "Whisper")
JOBS = TaskJobs(None, FINE_TUNING)


def _check_options(request: TrainRequest) -> None:
    if request.target_language:
        raise UserError("--target-language: transcripts are in the language of the speech; leave it out")
    if amount := parse_validation_size(request.valid):
        raise UserError(
            f"--valid {amount.text}: name a file of recordings, with other speakers than the training files"
        )


def spoken_language(model: SpeechModel, requested: str) -> str:
    """The code of the spoken language: `requested`, the only one, or that of generation_config.json."""
    known, path = model.special_tokens.languages, model.path / GENERATION
    own = str((read_json(path) if path.is_file() else {}).get("language") or "").strip("<|>")
    code = requested or (own if own in known else next(iter(known)) if len(known) == 1 else "")
    if known and not code:
        raise UserError(f"--source-language is required: this model knows {', '.join(sorted(known))}")
    return code


def _with_masking(corpus: SpeechDataset, model: SpeechModel) -> SpeechDataset:
    try:
        return replace(corpus, masks=spec_augment_of(model.hf_config, corpus.n_mels, corpus.frames))
    except UserError as error:
        raise UserError(f"{model.path}/{error}") from None


def spec_augment_of(hf_config: Mapping[str, Any], n_mels: int, frames: int) -> SpecAugment | None:
    """The masking of spectrograms in a config.json; `UserError` for spans longer than the spectrogram."""
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
        k.refuse(spans.share > 0 and spans.length > size, f"{name} = {spans.length}: a spectrogram has only {size}")
    return SpecAugment(time, bands)


def _corpus(model: SpeechModel, language: str, files: Any) -> SpeechDataset:
    start_ids = start_tokens(model.special_tokens, language, TASKS[0], timestamps=False)
    assert model.max_len
    sizes = model.config.n_mels, model.window, model.max_len
    return speech_dataset(files, transcript_encoder(model, language), start_ids, model.special_tokens.end, *sizes)


def transcript_encoder(model: SpeechModel, language: str) -> Callable[[str], list[int]]:
    """A function from a transcript to its ids, without the special tokens of the vocabulary."""
    vocabulary, space = model.tokenizer, "" if language in WITHOUT_SPACES else " "
    before, behind = marks_around(vocabulary.encode(""), vocabulary.encode("a"))

    def encode(text: str) -> list[int]:
        ids = vocabulary.encode(space + text)
        return ids[before : len(ids) - behind]

    return encode


def _rows(model: SpeechModel, dropout: float, language: str) -> dict[str, str]:
    """The rows of the model card for the network."""
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    shape = f"{stack.n_layers} + {config.decoder.n_layers} layers, d_model {stack.d_model}, {stack.n_heads} heads"
    return {
        "architecture": f"{config.family}: {shape}, windows of {stack.max_len / 50:g} s",
        **vocabulary_row(model, config.vocab_size),
        **({"language": language} if language else {}),
        **dropout_row(extra_dropout_rates(model.hf_config, dropout), dropout),
    }
