"""A captioner writes and is trained as `transformers` has it: the same captions, loss, gradients, and fifty updates.

A tiny random ViT with a GPT-2 of another width, which `transformers` saves; start, end and padding are one mark, as in
the checkpoint that everybody uses. Its processor makes pixels of the same files.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_families import vocabulary

import sightline
from sightline.data.image import read_image

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


def write_captioner(folder: Path, seed: int = 3, **decoder: Any) -> Any:
    """A model of transformers, saved as people publish it: preprocessing in its older words, vocabulary, ids."""
    config = transformers.VisionEncoderDecoderConfig(
        encoder=ENCODER, decoder=DECODER | decoder, decoder_start_token_id=END, pad_token_id=END, eos_token_id=END
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
        found = sightline.load(tmp_path / str(seed), "cpu").caption(paths, beam_size=beams, max_new_tokens=12)
        expected = [row[: row.index(END)] if END in row else row for row in rows]
        assert [one.tokens for one in found] == expected
        ended += sum(one.ended == "end" for one in found)
        lengths |= {len(row) for row in expected}
    assert 0 < ended < 20 and len(lengths) > 2


def test_pixels_are_those_of_transformers(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path, 3)
    write_captioner(tmp_path / "captioner")
    model = sightline.load(tmp_path / "captioner", "cpu")
    for path, expected in zip(paths, their_pixels(paths), strict=True):
        torch.testing.assert_close(read_image(path, model.preprocessing), expected, atol=1e-6, rtol=0)
