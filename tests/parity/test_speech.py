"""A Whisper is trained as `transformers` trains it: the same loss, gradients, and fifty updates of AdamW.

A tiny random network that `transformers` saves. Dropout is off, for each program draws its own masks; one test puts a
factor in the place of all of them. The decoder's input is given to `transformers` as well: with labels alone it would
read padding where a label is -100.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from side_by_side import SAME_LOSS, SAME_WEIGHT, batches_of, curves, in_file
from tiny_families import HEARING, WHISPER, write_tiny

import headwise
from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.core.transformer import Transformer
from headwise.evaluate.transcripts import normalize_transcript
from headwise.pytorch.data.conditional_generation import ConditionalBatch
from headwise.pytorch.tasks.initial_model import model_settings
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.transcription import TranscriptionJob, spec_augment_of, transcription_job

soundfile = pytest.importorskip("soundfile")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

TEXTS = ["ab", "c", "abc d", "dd"]
FROZEN = "model.encoder.embed_positions.weight"


def write_recordings(folder: Path) -> str:
    """Four tones of different heights and lengths, and the file that lists them."""
    for i in range(len(TEXTS)):
        seconds = np.arange(1600 * (i + 1)) / 16_000
        soundfile.write(folder / f"{i}.wav", np.sin(2000 * (i + 1) * seconds).astype(np.float32) / 2, 16_000)
    lines = [f"{i}.wav\t{text}\n" for i, text in enumerate(TEXTS)]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    return str(folder / "train.tsv")


def job_of(folder: Path, **changes: Any) -> TranscriptionJob:
    """Of a checkpoint with random weights that transformers has drawn."""
    values = WHISPER | {"max_source_positions": 20, "encoder_layers": 2, "decoder_layers": 2, "pad_token_id": 265}
    values |= {"dropout": 0.0, "scale_embedding": False} | changes
    write_tiny(folder, "whisper", values, HEARING)
    torch.manual_seed(3)
    config_class = transformers.WhisperConfig
    theirs = transformers.WhisperForConditionalGeneration(
        config_class(**json.loads((folder / "config.json").read_text()))
    )
    theirs.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(HEARING))
    files, init = [write_recordings(folder)], str(folder)
    request = TrainRequest("", files, files, str(folder / "out"), show=False, init=init, task="transcribe")
    settings = ["train.max_steps=50", "train.tokens_per_batch=60", "train.learning_rate=0.01", "train.warmup_steps=5"]
    recipe = load_recipe("tune-speech")
    config = RunConfig(model_settings(init, "transcribe"), recipe.data, recipe.train)
    return transcription_job(request, apply_settings(config, settings), folder / "out")


def loaded(folder: Path) -> Any:
    """What a training with transformers starts from; `from_pretrained` forgets that sinusoids are not trained."""
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").train()
    fresh = type(theirs)(theirs.config)
    for name, parameter in fresh.named_parameters():
        theirs.get_parameter(name).requires_grad_(parameter.requires_grad)
    assert [name for name, parameter in fresh.named_parameters() if not parameter.requires_grad] == [FROZEN]
    return theirs


@pytest.fixture
def both(tmp_path: Path) -> tuple[Any, Transformer, TranscriptionJob]:
    """The model in transformers, ours made of the folder that it saves, and the job."""
    job = job_of(tmp_path)
    return loaded(tmp_path), job.network().train(), job


def loss_of(theirs: Any, batch: ConditionalBatch) -> torch.Tensor:
    return theirs(input_features=batch.values, decoder_input_ids=batch.tgt_in, labels=batch.tgt_out).loss


def test_batches_are_what_transformers_makes_of_the_files(both: tuple[Any, Transformer, TranscriptionJob]) -> None:
    """Its features of the same samples; the forced beginning is read, and text and end mark are what is learnt."""
    _, _, job = both
    [batch] = map(job.valid.load, job.valid.in_order(4))
    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    for i, mel in enumerate(batch.values):
        samples = soundfile.read(job.valid.recordings[i].sound, dtype="float32")[0]
        features = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features[0]
        torch.testing.assert_close(mel, features[:, : mel.size(1)], atol=1e-4, rtol=0)
    text = [job.tokenizer.encode(f" {said}") for said in TEXTS]
    ids = [row[: len(row) - 1] for row in text]  # without the mark that the vocabulary puts behind a text
    assert batch.tgt_in[0, : 4 + len(ids[0])].tolist() == [266, 267, 268, 269, *ids[0]]
    for row, expected in zip(batch.tgt_out, ids, strict=True):
        assert row[row != -100].tolist() == [*expected, 265] and row[:3].tolist() == [-100] * 3


@pytest.mark.parametrize("seconds", [0.7, 2.345])
def test_windows_are_filled_up_as_there(seconds: float, tmp_path: Path) -> None:
    """One window with silence behind the recording; the last of several with zeros, which are no silence."""
    write_tiny(tmp_path, "whisper", WHISPER, HEARING)
    model: Any = headwise.load(tmp_path, "cpu")
    samples = torch.rand(round(seconds * 16_000), generator=torch.Generator().manual_seed(1)).numpy() - 0.5
    soundfile.write(tmp_path / "sound.wav", samples, 16_000, subtype="FLOAT")
    heard: list[torch.Tensor] = []
    model.network.src_embeddings.register_forward_pre_hook(lambda _, given: heard.append(given[0][0].clone()))
    with pytest.warns(UserWarning, match="a hook on src_embeddings: torch decodes"):
        model.transcribe(tmp_path / "sound.wav", "en", fallback=False)

    extractor = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    long = {"truncation": False, "padding": "longest"} if seconds > 1 else {}
    features = extractor(samples, sampling_rate=16_000, return_tensors="pt", **long).input_features
    frames = features.size(2)
    segment = transformers.WhisperForConditionalGeneration._get_input_segment
    theirs = [segment(features, [at], [min(100, frames - at)], 100, 1, [0])[0] for at in range(frames)]
    found = [[at for at, one in enumerate(theirs) if torch.allclose(one, part, atol=1e-4)] for part in heard]
    assert all(found), "no window is anything else than one of theirs"
    assert (found[-1][0] > frames - 100) == (seconds > 1)


def test_loss_and_gradients(both: tuple[Any, Transformer, TranscriptionJob]) -> None:
    theirs, own, job = both
    batch = next(batches_of(job))
    loss = loss_of(theirs, batch)
    loss.backward()
    found = job.objective(own)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected = {name: value.grad for name, value in theirs.named_parameters() if value.requires_grad}
    gradients = in_file(own, job, gradients=True)
    assert gradients.keys() == expected.keys() | {FROZEN} and len(gradients) > 60
    assert own.src_embeddings.positions.grad is None
    for key, value in expected.items():
        torch.testing.assert_close(
            gradients[key], value, atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.thorough
def test_fifty_updates(both: tuple[Any, Transformer, TranscriptionJob]) -> None:
    """A loop as their users write it, and the steps of our trainer: the same curve, and the same network at its end."""
    theirs, own, job = both
    train = job.config.train
    adamw = torch.optim.AdamW(
        [p for p in theirs.parameters() if p.requires_grad], lr=train.learning_rate, betas=train.betas, eps=train.eps,
        weight_decay=train.weight_decay,
    )  # fmt: skip
    objective = job.objective(own)
    found = curves(theirs, own, train, objective, batches_of(job), lambda batch: loss_of(theirs, batch), adamw)
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert found[0][-1] < found[0][0] - 1
    expected = dict(theirs.named_parameters())
    for key, value in in_file(own, job).items():
        torch.testing.assert_close(value, expected[key], atol=SAME_WEIGHT, rtol=0)


def test_what_is_saved_has_the_same_logits(both: tuple[Any, Transformer, TranscriptionJob], tmp_path: Path) -> None:
    _, own, job = both
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    out = tmp_path / "out"
    job.layout.write_companions(out)
    job.layout.write_weights(out, dict(own.named_parameters()), "")
    again = transformers.WhisperForConditionalGeneration.from_pretrained(out).eval()
    [batch] = map(job.valid.load, job.valid.in_order(4))
    logits = again(input_features=batch.values, decoder_input_ids=batch.tgt_in).logits
    torch.testing.assert_close(own.eval()(batch.values, batch.tgt_in), logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def test_what_transformers_drops_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, dropout=0.3, attention_dropout=0.4, activation_dropout=0.2, init_std=0.2)
    theirs = loaded(tmp_path)
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(
        Dropout,
        "forward",
        lambda self, x, residual=None: scaled(x, self.p, self.training) + (0 if residual is None else residual),
    )
    own, batch = job.network().train(), next(batches_of(job))
    found = job.objective(own)(batch).objective / batch.n_targets
    torch.testing.assert_close(found, loss_of(theirs, batch), atol=1e-5, rtol=1e-5)
    own.src_embeddings.dropout.p = 0.0  # that of the front, which only a Whisper has
    assert abs(job.objective(own)(batch).objective / batch.n_targets - found) > 1e-3


class Given(np.random.Generator):
    """Draws that are known: they stand for numpy's in transformers, and for a generator in ours."""

    def __init__(self, rounding: float, shuffled: list[int]) -> None:
        super().__init__(np.random.PCG64(0))
        self.rounding, self.shuffled = rounding, shuffled

    def random(self) -> float:  # type: ignore[override]
        return self.rounding

    def rand(self, _: int) -> np.ndarray:
        return np.array([self.rounding])

    def choice(self, among: Any, n: int, replace: bool) -> np.ndarray:  # type: ignore[override]
        size = among if isinstance(among, int) else len(among)
        assert not replace
        return np.array([i for i in self.shuffled if i < size][:n], np.int64)


@pytest.mark.parametrize("rounding", [0.0, 0.3, 0.999])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mask_time_prob": 0.5, "mask_time_length": 3, "mask_feature_prob": 0.3, "mask_feature_length": 2},
        {"mask_time_prob": 0.9, "mask_time_length": 15, "mask_feature_prob": 0.1, "mask_feature_length": 7},
        {"mask_time_prob": 0.0, "mask_feature_prob": 0.2, "mask_feature_length": 1, "mask_feature_min_masks": 3},
        {"mask_time_prob": 0.01, "mask_time_length": 1, "mask_time_min_masks": 38},
    ],
)
def test_the_same_draws_mask_the_same(values: dict[str, Any], rounding: float, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.WhisperConfig(**WHISPER | {"pad_token_id": 265, "apply_spec_augment": True} | values)
    theirs = transformers.WhisperModel(config).train()
    mel = torch.randn(8, 40)
    given = Given(rounding, np.random.default_rng(1).permutation(40).tolist())
    monkeypatch.setattr(np.random, "rand", given.rand)
    monkeypatch.setattr(np.random, "choice", given.choice)
    expected = theirs._mask_input_features(mel[None].clone())[0]
    masks = spec_augment_of(config.to_dict(), *mel.shape)
    assert masks and (expected == 0).any() and (expected != 0).any()
    torch.testing.assert_close(masks(mel, given), expected, atol=0, rtol=0)


@pytest.mark.parametrize("text", ["(Sighs) Seven, EIGHT!", "[noise (loud) x] Ça-va? 9%", "ﬁne <unk> e\u0301", ""])
def test_texts_are_normalised_as_there(text: str) -> None:
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    assert normalize_transcript(text) == BasicTextNormalizer()(text).strip()
