"""Texts, pictures and sounds as the inspector reads them, with names for their positions; and the same with a loss.

See `headwise.view` for the inspector and `headwise.view.pair` for pairs of texts.
"""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.errors import UserError
from headwise.models.model import Model
from headwise.models.speech.transcribe import (
    FRAMES,
    STEP,
    WindowEncoder,
    detect_language,
    start_tokens,
    transcribe_window,
)
from headwise.pytorch.data.image import Preprocessing, preprocessing_from_hf, read_image
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import (
    CaptionedPicture,
    ContinuedText,
    DescribedInput,
    EncodedInput,
    Names,
    TranscribedSound,
)
from headwise.runtime.checkpoint.layout import PREPROCESSOR, read_json
from headwise.runtime.tokenizers.pretrained_tokenizer import PretrainedTokenizer, encoder_special_ids
from headwise.runtime.tokenizers.vocabulary import Vocabulary, bare
from headwise.text.files.audio import HOP, RATE, log_mel, read_audio
from headwise.view.pair import output_ids
from headwise.view.record import Axis, Patches
from headwise.view.words import words_spelled

MOST = 1024  # positions: attention weights grow with their square
APART = 7  # every seventh token is masked at once, about the 15 % of BERT's training
PREFIX = ("<class>", "<distilled>")  # tokens before the patches of ViT and DeiT


# --- Texts ---


def encoded_text(model: Model, text: str) -> EncodedInput:
    """A text for an encoder alone."""
    ids, axis = _text(model.tokenizer, text, model.config.encoder.longest)
    head, names = model.config.head, _token_names(model.tokenizer)
    if head in ("text_class", "token_class"):
        names = _labels(model.hf_config)
    whole, each = head == "text_class", head in ("masked", "token_class")
    return EncodedInput(text, ids, axis, [""] if whole else list(axis.labels) if each else [], names)


def text_to_continue(model: Model, text: str, max_len: int | None) -> ContinuedText:
    """A text for a decoder alone; the token that it predicts at the end is unknown."""
    ids, axis = _text(model.tokenizer, text, max_len)
    written = [*axis.labels[1:], ""] if model.config.head == "language" else []
    return ContinuedText(text, ids, axis, written, _token_names(model.tokenizer))


def _text(vocabulary: Vocabulary, text: str, max_len: int | None) -> tuple[Int[Tensor, "1 length"], Axis]:
    if not text.strip():
        raise UserError("the text is blank: there is nothing to look at")
    ids = vocabulary.encode(text)
    if len(ids) > (most := min(max_len or MOST, MOST)):
        raise UserError(f"the text has {len(ids):,} tokens, more than the {most:,} that can be inspected: shorten it")
    side = bare_tokenizer(vocabulary)
    return torch.tensor([list(ids)]), Axis(side.pieces(ids), words_spelled(side, ids))


def bare_tokenizer(vocabulary: Vocabulary) -> PretrainedTokenizer:
    """A vocabulary that only spells tokens, without its special ones."""
    return PretrainedTokenizer(vocabulary, vocabulary.encode, encoder_special_ids(0, 0, 0))


def _token_names(vocabulary: Vocabulary) -> Names:
    return bare_tokenizer(vocabulary).pieces


def _labels(hf_config: Mapping[str, Any]) -> Names:
    listed = {int(i): str(name) for i, name in (hf_config.get("id2label") or {}).items()}
    return lambda ids: [listed.get(i, str(i)) for i in ids]


# --- Pictures ---


def encoded_picture(model: Model, path: str | Path, how: Preprocessing) -> EncodedInput:
    """A picture for an encoder of patches."""
    pixels = read_image(path, how)
    written = [""] if model.config.head == "image_class" else []
    axis = _patches(model, pixels, how)
    return EncodedInput(Path(path).name, pixels.unsqueeze(0), axis, written, _labels(model.hf_config))


def captioned_picture(model: Any, path: str | Path, target: str | None = None, **settings: Any) -> CaptionedPicture:
    """A picture with its caption: `target`, or the model's own; settings as for `caption`."""
    pixels, chosen = read_image(path, model.preprocessing), model.generation.changed({"n_best": 1, **settings})
    prompt, ends = chosen.special.prompt, [chosen.special.eos_id] if chosen.can_end else []
    if target is None:
        best = model.search([pixels], chosen)[0][0]
        tgt = output_ids(best, *ends) if ends else best.tokens
    else:
        tgt = [*bare(model.tokenizer)[0](target.strip()), *ends]
    if model.max_len and len(prompt) + len(tgt) - 1 > model.max_len:
        raise UserError(f"the caption has {len(tgt)} tokens, and this model writes {model.max_len}: shorten it")
    axis = _patches(model, pixels, model.preprocessing)
    return CaptionedPicture(Path(path).name, pixels.unsqueeze(0), prompt, tgt, bare_tokenizer(model.tokenizer), axis)


def _patches(model: Model, pixels: Float[Tensor, "3 height width"], how: Preprocessing) -> Axis:
    c = model.config
    rows, columns = (length // c.patch_size for length in c.image_size)
    labels = [*PREFIX[: c.n_prefix], *(f"row {r}, col {k}" for r in range(rows) for k in range(columns))]
    return Axis(labels, of=Patches(_colours(pixels, how), rows, columns, c.n_prefix))


def _colours(pixels: Float[Tensor, "3 height width"], how: Preprocessing) -> Any:
    """The pixel values as colours from 0 to 255 again."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (how.mean, how.std))
    return ((pixels * std + mean) / how.scale).round().clamp(0, 255).byte().permute(1, 2, 0).contiguous().numpy()


def preprocessing_of(model: Model) -> Preprocessing:
    """The preprocessing in the folder of a model of pictures; by default that of ViT, at the size of its pictures."""
    path = model.path / PREPROCESSOR
    if path.is_file():
        return preprocessing_from_hf(read_json(path))
    return Preprocessing(size=model.config.image_size)


# --- Sounds ---


def transcribed_sound(
    model: Any,
    path: str | Path,
    target: str | None = None,
    n_times: int = 300,
    language: str = "",
    task: str = "transcribe",
    **settings: Any,
) -> TranscribedSound:
    """A sound of at most one window with its transcript: `target`, or the model's own.

    Args:
        model: a `SpeechModel`; language, task and settings of generation are as `transcribe` takes them.
        n_times: into how many stretches the sound is divided at most; 0 = one for each encoder position.

    Raises:
        UserError: the file cannot be read or is longer than a window; or as for `transcribe`.
    """
    if n_times < 0:
        raise UserError(f"n_times = {n_times}: must be a number of stretches, or 0 for all positions")
    stack = model.config.encoder
    samples, frames = read_audio(path), FRAMES * stack.max_len
    seconds = len(samples) / RATE
    if len(samples) // HOP > frames:
        longest = frames * HOP / RATE
        raise UserError(f"{path}: has {seconds:.1f} seconds, and this model reads {longest:g} at once: cut it")
    mel = log_mel(samples, model.config.n_mels, ceil(frames * HOP / RATE))[:, :frames]
    encode = WindowEncoder(model.speech_network())
    language = language or detect_language(encode, mel, model.special_tokens)
    prompt = start_tokens(model.special_tokens, language, task, timestamps=False)
    if target is None:
        chosen = model.generation.changed({"n_best": 1, **settings})
        tgt = output_ids(
            transcribe_window(encode.network, encode(mel), prompt, model.special_tokens, chosen, False, model.max_len),
            model.special_tokens.end,
        )
    else:
        tgt = [*bare(model.tokenizer)[0](f" {target.strip()}"), model.special_tokens.end]
    if model.max_len and len(prompt) + len(tgt) - 1 > model.max_len:
        raise UserError(f"the transcript has {len(tgt)} tokens, and this model writes {model.max_len}: shorten it")
    n_sound, name = min(max(1, ceil(seconds / STEP)), stack.max_len), Path(path).name
    return TranscribedSound(
        name, torch.from_numpy(mel[None]), prompt, tgt, bare_tokenizer(model.tokenizer), n_sound, STEP, n_times
    )


# --- With a loss ---


def next_tokens(ids: Int[Tensor, "1 length"]) -> Example:
    """A text for a network that predicts the next token."""
    return Example(1, lambda network: _loss(network.logits(_moved(network, ids, network.decode))[:, :-1], ids[:, 1:]))


def masked_text(ids: Int[Tensor, "1 length"], vocabulary: Vocabulary, mask_id: int) -> Example:
    """A text for a masked language model: `APART` rows, each with other tokens masked, but no special ones."""
    side = bare_tokenizer(vocabulary)
    real = [position for position, token in enumerate(ids[0].tolist()) if not side.is_special(token)]
    masked = torch.zeros(min(APART, len(real)), ids.size(1), dtype=torch.bool)
    masked[torch.arange(len(real)) % APART, real] = True
    targets = ids.expand(len(masked), -1).masked_fill(~masked, -100)
    rows = ids.expand(len(masked), -1).masked_fill(masked, mask_id)
    return Example(len(rows), lambda network: _loss(network.logits(_moved(network, rows, network.encode)), targets))


def labelled(values: Tensor, number: int) -> Example:
    """Ids of a text, or pixels, with a label."""
    target = torch.tensor([number])
    return Example(1, lambda network: _loss(network.logits(_moved(network, values, network.encode)), target))


def described_input(of: DescribedInput) -> Example:
    """A sound with its transcript, or a picture with its caption; the start tokens are given."""
    targets = torch.tensor([[*[-100] * (len(of.prompt) - 1), *of.tgt]])
    return Example(1, lambda network: _loss(network.logits(of.read_by(network)), targets))


def _moved(network: Any, values: Tensor, read: Any) -> Tensor:
    return read(values.to(next(network.parameters()).device))


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The sum of the negative log-likelihoods of all targets other than -100."""
    logits = logits.float().reshape(-1, logits.size(-1))
    return F.cross_entropy(logits, targets.to(logits.device).flatten(), reduction="sum")


def label_number(model: Model, label: Any) -> int:
    """The class of a label given by name or number; `UserError` for an unknown one."""
    listed = {str(name): int(i) for i, name in (model.hf_config.get("id2label") or {}).items()}
    number = listed.get(str(label), label)
    if not isinstance(number, int) or not 0 <= number < model.config.n_classes:
        known = ", ".join(listed) or f"numbers 0 to {model.config.n_classes - 1}"
        raise UserError(f"label {label!r}: this model knows {known}")
    return number
