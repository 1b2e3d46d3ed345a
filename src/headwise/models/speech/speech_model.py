"""Speech recognition with Whisper: recordings to transcripts.

The compiled library runs it without torch; what looks inside needs torch. See `models.speech.transcribe` for its
decoding rules, `headwise.text.files.audio` for sound files and `headwise.pytorch.tasks.transcription` for fine-tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float32

from headwise.contract import Hypothesis, Limits, SearchOptions, SpeechNetwork
from headwise.device import usable_threads
from headwise.errors import UserError
from headwise.evaluate.transcripts import TranscriptReport, check_jiwer, normalizer_of, transcript_report
from headwise.importing import torch_needed
from headwise.models.introspection import InspectableModel, ModelWithLoss
from headwise.models.speech.fallback import (
    BEST_OF,
    LOG_PROB,
    Attempt,
    WindowTranscriber,
    compression_ratio,
    no_speech_probability,
    prompt_with_history,
    transcribe_attempt,
)
from headwise.models.speech.transcribe import (
    FRAMES,
    WhisperTokens,
    WindowEncoder,
    detect_language,
    start_tokens,
    transcribe_window,
    whisper_tokens,
    windows,
)
from headwise.models.speech.transcript_formats import Segment, Transcript
from headwise.runtime.checkpoint.generation_config import FILE as SETTINGS_FILE
from headwise.runtime.checkpoint.generation_config import GenerationConfig, read_generation_config
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.native.arrays import Ints
from headwise.runtime.native.linear import NUMBERS
from headwise.runtime.native.network import Decoding
from headwise.runtime.native.search import Search
from headwise.runtime.native.speech import CompiledSpeech
from headwise.runtime.native.threads import use_threads
from headwise.runtime.search.cancellation import set_when_cancelled
from headwise.text.files.audio import HOP, RATE, log_mel, read_audio
from headwise.text.files.recordings import Recording, read_recordings

if TYPE_CHECKING:
    from headwise.pytorch.models.speech import SpeechInTorch


Found = TypeVar("Found")


class SpeechModel(InspectableModel, ModelWithLoss):
    """Whisper: transcribes speech, or translates it into English."""

    does = "hears speech and writes it down"
    reads = "sound"
    writes = True
    usual_task = "transcribe"

    def torch(self) -> SpeechInTorch:
        with torch_needed():
            from headwise.pytorch.models.speech import SpeechInTorch
        return SpeechInTorch(self)

    def transcribe(
        self,
        sound: str | Path,
        language: str = "",
        task: str = "transcribe",
        timestamps: bool = True,
        fallback: bool = True,
        condition: bool = False,
        **settings: Any,
    ) -> Transcript:
        """The transcript of a sound file of any length.

        Args:
            sound: WAV, FLAC or another format of libsndfile.
            language: code of the spoken language ("en"); "" = detect it.
            task: "transcribe", or "translate" into English.
            timestamps: return times of segments. A recording longer than a window is always decoded with timestamps,
                which tell where the next window starts.
            fallback: sample again at higher temperatures where the text repeats itself or is improbable; skip silence.
            condition: each window is conditioned on the text of the previous ones.
            **settings: fields of `headwise.config.settings.SearchSettings`, such as `beam_size=5`.

        Raises:
            UserError: the file cannot be read, or the model does not know the language or the task.
        """
        chosen, size = self.generation.changed({"n_best": 1, **settings}, NUMBERS), self.window
        samples = read_audio(sound)
        frames = max(1, len(samples) // HOP)
        seconds = 0 if frames > size else -(-size * HOP // RATE)  # one window is padded with silence
        mel = log_mel(samples, self.config.n_mels, seconds)
        encode = WindowEncoder(self.speech_network(chosen.settings.compute))
        language = language or detect_language(encode, mel[:, :size], self.special_tokens)
        in_segments = timestamps or frames > size
        start_ids = start_tokens(self.special_tokens, language, task, in_segments)

        if fallback or condition:
            listen = self._listener(encode, start_ids, chosen, in_segments, fallback, condition)
        else:
            listen = partial(self._listen, encode, start_ids, chosen, in_segments)
        if in_segments:
            heard = windows(listen, mel, frames, size, self.special_tokens.first_timestamp)
        else:
            heard = [(0.0, frames * HOP / RATE, listen(mel[:, :size]))]
        segments = tuple(Segment(start, end, self.tokenizer.decode(text).strip()) for start, end, text in heard)
        return Transcript(" ".join(segment.text for segment in segments), language, segments)

    def speech_network(self, compute: str = NUMBERS[0]) -> SpeechNetwork:
        """The network in this precision: in the compiled library, or in torch if the library does not support it."""
        form = self.folder.stored.form(compute)
        if isinstance(form, CompiledSpeech):
            return LibrarySpeech(form)
        return self.torch().speech_network(form)

    def _listen(
        self,
        encode: WindowEncoder,
        start_ids: Sequence[int],
        chosen: GenerationConfig,
        in_segments: bool,
        window: Float32[np.ndarray, "n_mels frames"],
    ) -> list[int]:
        options = start_ids, self.special_tokens, chosen, in_segments, self.max_len
        return transcribe_window(encode.network, encode(window), *options).tokens

    def _listener(
        self,
        encode: WindowEncoder,
        start_ids: Sequence[int],
        chosen: GenerationConfig,
        in_segments: bool,
        fallback: bool,
        condition: bool,
    ) -> WindowTranscriber:
        """Transcribes windows with fallback and conditioning, like the reference implementation."""
        previous, silence = (
            self._token(*names) for names in (("<|startofprev|>",), ("<|nospeech|>", "<|nocaptions|>"))
        )
        if condition and previous is None:
            raise UserError(f"{self.path}: its vocabulary has no <|startofprev|>, which earlier text needs")

        def listen(memory: Any, before: Sequence[int], temperature: float) -> Attempt:
            prompt = prompt_with_history(before, start_ids, previous, self.max_len)
            sampling = {"sample": True, "beam_size": 1, "n_best": BEST_OF, "temperature": temperature, "top_k": 0}
            config = replace(chosen, settings=replace(chosen.settings, **(sampling if temperature else {})))
            tokens, log_prob = transcribe_attempt(
                encode.network, memory, prompt, self.special_tokens, config, in_segments, self.max_len
            )
            silent = 0.0
            if silence is not None and log_prob < LOG_PROB:  # otherwise it is speech
                inputs = encode.network, memory, prompt, self.special_tokens.start
                silent = no_speech_probability(*inputs, silence)
            ratio = compression_ratio(self.tokenizer.decode(tokens).strip())
            return Attempt(tokens, log_prob, ratio, silent, temperature)

        return WindowTranscriber(encode, listen, self.special_tokens.first_timestamp, fallback, condition)

    def _token(self, *names: str) -> int | None:
        return next((found for name in names if (found := self.tokenizer.id_of(name)) is not None), None)

    def evaluate(self, paths: Sequence[str], language: str = "", normalizer: str = "basic") -> TranscriptReport:
        """Word and character error rates on tables of recordings with transcripts; recordings are independent.

        Each is searched once, without temperature fallback, as in the validation of a training.
        `normalizer` makes texts comparable: "basic", or "english", where "7" is seven.
        """
        check_jiwer()
        normalizer_of(normalizer)
        recordings = [recording for path in paths for recording in read_recordings(path)]
        written = [self._heard(recording, language) for recording in recordings]
        return transcript_report([recording.text for recording in recordings], written, normalizer)

    def _heard(self, recording: Recording, language: str) -> str:
        try:
            return self.transcribe(recording.sound, language, timestamps=False, fallback=False).text
        except UserError as error:
            raise UserError(f"{recording.origin}: {error}") from None

    @cached_property
    def generation(self) -> GenerationConfig:
        """Settings of generation; `unused` names those of its file that are not supported."""
        return read_generation_config(self.path, self.hf_config, has_encoder=True)

    @cached_property
    def special_tokens(self) -> WhisperTokens:
        """The special tokens of the model."""
        path = self.path / SETTINGS_FILE
        return whisper_tokens(self.generation, read_json(path) if path.is_file() else {}, self.tokenizer)

    @property
    def window(self) -> int:
        """Frames of a spectrogram in a window."""
        assert self.config.encoder
        return FRAMES * self.config.encoder.max_len

    @cached_property
    def max_len(self) -> int | None:
        """The longest output, with its start tokens."""
        return self.config.decoder.longest


class LibrarySpeech:
    """A `SpeechNetwork` in the compiled library; of a recording it encodes and searches one window at a time."""

    def __init__(self, network: CompiledSpeech) -> None:
        self.network = network
        self._stop = np.zeros(1, np.int32)

    def encode(self, mel: Float32[np.ndarray, "n_mels frames"]) -> Decoding:
        """See `SpeechNetwork.encode`."""
        return _interruptible(self._stop, lambda: self.network.encode(mel, self._stop))

    def search(
        self, memory: Decoding, prompt: Sequence[int], limits: Limits, options: SearchOptions
    ) -> list[Hypothesis]:
        """See `SpeechNetwork.search`."""

        def run() -> list[Hypothesis]:
            memory.read_prompt(prompt)
            return Search([memory], options, limits).run()[0]

        return _interruptible(self._stop, run)

    def logits(self, memory: Decoding, prompt: Sequence[int]) -> Float32[np.ndarray, " vocab"]:
        """See `SpeechNetwork.logits`."""
        return self.network.output(memory.read_prompt(prompt)[-1:])[0]


def _interruptible(stop: Ints, run: Callable[[], Found]) -> Found:
    """The result of a function that ends soon after `stop` becomes non-zero: by Ctrl-C, or a cancellation.

    Its products are shared among all usable threads.
    """

    def run_with_threads() -> Found:
        use_threads(usable_threads())
        return run()

    with set_when_cancelled(stop), ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(run_with_threads).result()
        except BaseException:
            stop[0] = 1
            raise
        finally:
            pool.shutdown()
            stop[0] = 0
