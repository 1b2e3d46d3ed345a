"""A captioner writes and is trained as `transformers` has it: the same captions, loss, gradients, and fifty updates.

A tiny random ViT with a GPT-2 of another width, which `transformers` saves; start, end and padding are one mark, as in
the checkpoint that everybody uses. Its processor makes pixels of the same files.
"""

import json
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from side_by_side import SAME_LOSS, batches_of, curves, in_file
from tiny_families import vocabulary

import headwise
from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.core.dropout import Dropout
from headwise.pytorch.checkpoint.compose import write_composed
from headwise.pytorch.data.conditional_generation import ConditionalBatch
from headwise.pytorch.data.image import read_image
from headwise.pytorch.tasks.captioning import CaptionJob, fine_tuning_job
from headwise.pytorch.tasks.initial_model import model_settings
from headwise.pytorch.tasks.job import TrainRequest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
Image = pytest.importorskip("PIL.Image")

END = 2
ENCODER = {
    "model_type": "vit", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 8, "patch_size": 4, "initializer_range": 0.3, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
DECODER = {
    "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24, "initializer_range": 0.3,
    "vocab_size": 265, "add_cross_attention": True, "is_decoder": True, "tie_word_embeddings": True,
    "bos_token_id": END, "eos_token_id": END, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
PIXELS = {"do_normalize": True, "do_resize": True, "feature_extractor_type": "ViTFeatureExtractor", "size": 8,
          "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2}  # fmt: skip


def write_captioner(folder: Path, seed: int = 3, looks: dict[str, Any] | None = None, **decoder: Any) -> Any:
    """A model of transformers, saved as people publish it: preprocessing in its older words, vocabulary, ids."""
    config = transformers.VisionEncoderDecoderConfig(
        encoder=ENCODER | (looks or {}),
        decoder=DECODER | decoder,
        decoder_start_token_id=END,
        pad_token_id=END,
        eos_token_id=END,
    )
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        theirs = transformers.VisionEncoderDecoderModel(config).eval()
        if theirs.decoder.lm_head.weight is not theirs.decoder.transformer.wte.weight:
            theirs.decoder.lm_head.weight.data[END] *= 4  # or captions would hardly ever end
        theirs.save_pretrained(folder)
    vocabulary(behind=False).save(str(folder / "tokenizer.json"))
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    return theirs


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Pictures of noise, of several sizes and colours."""
    generator = np.random.default_rng(5)
    paths = [folder / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        pixels = generator.integers(0, 150, (9 + i % 3, 12, 3), dtype=np.uint8)
        pixels[:, :, i % 3] += 80
        Image.fromarray(pixels).save(path)
    return paths


def their_pixels(paths: list[Path]) -> torch.Tensor:
    processor = transformers.ViTImageProcessorPil(size={"height": 8, "width": 8})
    return processor([Image.open(path).convert("RGB") for path in paths], return_tensors="pt")["pixel_values"]


@pytest.mark.parametrize("beams", [1, 4])
def test_captions_are_those_of_transformers(beams: int, tmp_path: Path) -> None:
    """Search and preprocessing; of several random networks, so that some captions end by themselves and some do not."""
    paths, ended, lengths = write_pictures(tmp_path, 5), 0, set[int]()
    for seed in range(4):
        theirs = write_captioner(tmp_path / str(seed), seed, tie_word_embeddings=False)
        settings = {"max_new_tokens": 12, "num_beams": beams, "do_sample": False}
        rows = theirs.generate(pixel_values=their_pixels(paths), **settings)[:, 1:].tolist()
        found = headwise.load(tmp_path / str(seed), "cpu").caption(paths, beam_size=beams, max_new_tokens=12)
        expected = [row[: row.index(END)] if END in row else row for row in rows]
        assert [one.tokens for one in found] == expected
        ended += sum(one.ended == "end" for one in found)
        lengths |= {len(row) for row in expected}
    assert 0 < ended < 20 and len(lengths) > 2


@pytest.mark.parametrize("beams", [1, 3])
def test_forced_words_penalties_and_biases_of_captions(beams: int, tmp_path: Path) -> None:
    """As files ask for them; a forced word is part of a caption, a forced special token is not."""
    paths, theirs = write_pictures(tmp_path, 3), write_captioner(tmp_path / "model", tie_word_embeddings=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "model" / "tokenizer.json"))
    word, special = tokenizer.encode("K")[0], 5
    texts: list[list[str]] = []
    for forced in (word, special):
        settings = {
            "repetition_penalty": 1.8, "sequence_bias": [[[END, forced, 40], 4.0], [[50], 2.0]], "num_beams": beams,
            "forced_bos_token_id": forced, "max_new_tokens": 9,
        }  # fmt: skip
        (tmp_path / "model" / "generation_config.json").write_text(
            json.dumps({**theirs.generation_config.to_diff_dict(), **settings})
        )
        rows = theirs.generate(pixel_values=their_pixels(paths), do_sample=False, **settings)[:, 1:].tolist()
        model = headwise.load(tmp_path / "model", "cpu")
        found = model.caption(paths)
        texts.append([one.text for one in found])
        assert texts[-1] == [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
        skipped = int(forced == special)
        assert [one.tokens for one in found] == [row[skipped : row.index(END) if END in row else None] for row in rows]
        assert not model.generation.unused
    assert all(text.startswith("K") for text in texts[0]) and texts[0] != texts[1]


def test_pixels_are_those_of_transformers(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path, 3)
    write_captioner(tmp_path / "captioner")
    model = headwise.load(tmp_path / "captioner", "cpu")
    for path, expected in zip(paths, their_pixels(paths), strict=True):
        torch.testing.assert_close(read_image(path, model.preprocessing), expected, atol=1e-6, rtol=0)


# --- Two folders joined


@pytest.mark.parametrize("width", [24, 16])
def test_two_folders_are_joined_as_transformers_joins_them(width: int, tmp_path: Path) -> None:
    """Its weights but for those that are drawn, its configuration; what comes out is loaded there, nothing missing."""
    vit = transformers.ViTConfig(**{**ENCODER, "num_labels": 3})
    single = {key: value for key, value in DECODER.items() if key not in ("add_cross_attention", "is_decoder")}
    gpt2 = transformers.GPT2Config(**{**single, "n_embd": width})
    with torch.random.fork_rng():
        torch.manual_seed(3)
        transformers.ViTForImageClassification(vit).save_pretrained(tmp_path / "vit")
        transformers.GPT2LMHeadModel(gpt2).save_pretrained(tmp_path / "gpt2")
    vocabulary(behind=False).save(str(tmp_path / "gpt2" / "tokenizer.json"))
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    parts = tmp_path / "vit", tmp_path / "gpt2"
    writes = transformers.GPT2Config.from_pretrained(parts[1])
    writes.is_decoder = writes.add_cross_attention = True  # which 5.23 asks for without looking whether it is there
    theirs = transformers.VisionEncoderDecoderModel.from_encoder_decoder_pretrained(
        *map(str, parts), decoder_config=writes
    )
    write_composed(*parts, tmp_path / "joined")
    ours, report = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "joined", output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected, found = theirs.state_dict(), ours.state_dict()
    assert expected.keys() == found.keys()
    drawn = {key for key in found if not torch.equal(found[key], expected[key])}
    parts_drawn = ("crossattention.c_attn.weight", "crossattention.q_attn.weight", "crossattention.c_proj.weight")
    names = {f"decoder.transformer.h.{i}.{part}" for i in range(2) for part in parts_drawn}
    assert drawn == names | {"encoder.pooler.dense.weight"} | ({"enc_to_dec_proj.weight"} if width == 16 else set())
    for key in names:
        assert found[key].std() == pytest.approx(0.02 / (2 if "c_proj" in key else 1), rel=0.25)
    for part in ("encoder", "decoder"):
        wanted, said = (getattr(model.config, part).to_dict() for model in (theirs, ours))
        others = ("architectures", "id2label", "label2id", "_name_or_path", "dtype", "transformers_version")
        assert {key for key in wanted if wanted[key] != said.get(key)} <= {*others}
    model, pixels = headwise.load(tmp_path / "joined", "cpu"), torch.randn(2, 3, 8, 8)
    tokens = torch.randint(3, 200, (2, 5))
    with torch.inference_mode():
        logits = model.network.logits(model.network.decode(tokens, model.network.encode(pixels)))
        wanted = ours(pixel_values=pixels, decoder_input_ids=tokens).logits
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=1e-5)
    write_pictures(tmp_path, 1)
    assert isinstance(model.caption([tmp_path / "0.png"], max_new_tokens=3)[0].text, str)


# --- Training


TEXTS = ["ab", "c", "abc d", "dd", "a b"]


def job_of(folder: Path, **changes: Any) -> tuple[Any, CaptionJob]:
    """The model in transformers, and the job that starts from the folder that it saves."""
    theirs, init = write_captioner(folder / "in", **changes), str(folder / "in")
    paths = write_pictures(folder, len(TEXTS))
    lines = [f"{path.name}\t{text}\n" for path, text in zip(paths, TEXTS, strict=True)]
    (folder / "train.tsv").write_text("".join(lines) + f"{paths[1].name}\tda d\n")
    files = [str(folder / "train.tsv")]
    request = TrainRequest("", files, files, str(folder / "out"), show=False, init=init, task="caption")
    settings = ["train.max_steps=50", "train.tokens_per_batch=12", "train.learning_rate=0.01", "train.warmup_steps=5"]
    recipe = load_recipe("tune-captions")
    config = RunConfig(model_settings(init, "caption"), recipe.data, recipe.train)
    return theirs.train(), fine_tuning_job(request, apply_settings(config, settings), folder / "out")


def loss_of(theirs: Any, batch: ConditionalBatch) -> torch.Tensor:
    """With labels alone: what the decoder reads `transformers` makes of them."""
    return theirs(pixel_values=batch.values, labels=batch.tgt_out).loss


def gradients_in_file(theirs: Any, folder: Path) -> dict[str, torch.Tensor]:
    """Its files have other names than its modules: its gradients as it would save them, but the pooler's, of none."""
    as_weights = deepcopy(theirs)
    for weight, parameter in zip(as_weights.parameters(), theirs.parameters(), strict=True):
        weight.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    as_weights.save_pretrained(folder)
    found = load_file(folder / "model.safetensors")
    return {key: value for key, value in found.items() if "pooler" not in key}


def test_loss_and_gradients(tmp_path: Path) -> None:
    theirs, job = job_of(tmp_path)
    own, batch = job.network().train(), next(batches_of(job))
    loss = loss_of(theirs, batch)
    loss.backward()
    found = job.objective(own)(batch)
    (found.objective / batch.n_targets).backward()
    torch.testing.assert_close(found.objective / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    expected, gradients = gradients_in_file(theirs, tmp_path / "gradients"), in_file(own, job, gradients=True)
    assert gradients.keys() == expected.keys() and len(gradients) > 60
    for key, value in expected.items():
        torch.testing.assert_close(
            gradients[key], value, atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.thorough
def test_fifty_updates(tmp_path: Path) -> None:
    theirs, job = job_of(tmp_path)
    own, train = job.network().train(), job.config.train
    found = curves(theirs, own, train, job.objective(own), batches_of(job), lambda batch: loss_of(theirs, batch))
    assert found[1] == pytest.approx(found[0], rel=0, abs=SAME_LOSS)
    assert found[0][-1] < found[0][0] - 1


def test_what_is_saved_has_the_same_logits(tmp_path: Path) -> None:
    """And the pooler, which is not trained, is as it was: `transformers` misses nothing."""
    theirs, job = job_of(tmp_path)
    own, out = job.network(), tmp_path / "out"
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    job.layout.write_companions(out)
    job.layout.write_weights(out, dict(own.named_parameters()), "")
    again, said = transformers.VisionEncoderDecoderModel.from_pretrained(out, output_loading_info=True)
    assert not said["missing_keys"] and not said["unexpected_keys"]
    assert torch.equal(again.encoder.pooler.dense.weight, theirs.encoder.pooler.dense.weight)
    [batch] = map(job.valid.load, job.valid.in_order(9))
    logits = again.eval()(pixel_values=batch.values, decoder_input_ids=batch.tgt_in).logits
    torch.testing.assert_close(own.eval()(batch.values, batch.tgt_in), logits, atol=1e-5, rtol=1e-5)


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


@pytest.mark.parametrize(("rate", "attention"), [(0.1, 0.2), (0.0, 0.0), (0.3, 0.0)])
def test_each_part_drops_what_its_configuration_says(
    rate: float, attention: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": attention}
    writes = {"resid_pdrop": 0.4, "embd_pdrop": 0.4, "attn_pdrop": 0.3 if attention else 0.0}
    _, job = job_of(tmp_path, looks=looks, **writes)
    theirs = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "in", attn_implementation="eager")
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(
        Dropout,
        "forward",
        lambda self, x, residual=None: scaled(x, self.p, self.training) + (0 if residual is None else residual),
    )
    assert job.config.model.dropout == 0.4
    own, batch = job.network().train(), next(batches_of(job))
    found = job.objective(own)(batch).objective / batch.n_targets
    torch.testing.assert_close(found, loss_of(theirs.train(), batch), atol=1e-5, rtol=1e-5)
