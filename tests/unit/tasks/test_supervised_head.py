"""Guided alignment: its loss, its data, and that a head is trained by it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_readers import align_with_torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, apply_settings, check
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.core.train import Objective
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.recording import recording
from headwise.pytorch.tasks.alignment import alignment_objective, first_head
from headwise.pytorch.training.step import translation_objective
from headwise.text.files.alignment import corpus_links
from headwise.text.files.columns import Column
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.prepared import prepare
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.alignment import AlignmentHead

PAIRS = [("a little dog !", "ein kleiner Hund !"), ("cats", "die Katzen"), ("the sofa", "Sofa")]
LINKS = [[(0, 0), (1, 1), (2, 2)], [(0, 0), (0, 1)], [(0, 0), (1, 0)]]
COLUMN = Column(
    np.array([n for pair in LINKS for link in pair for n in link], np.int32), np.array([0, 6, 10, 14], np.int64)
)
TOKENIZER = Tokenizer.train([side for pair in PAIRS for side in pair] * 2, TranslationData(vocab_size=300))


def batch_of(rows: list[int]) -> Batch:
    pairs = [(TOKENIZER.encode(PAIRS[row][0]), TOKENIZER.encode(PAIRS[row][1])) for row in rows]
    return collate(pairs, TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.eos_id, rows)


def build() -> Transformer:
    shape = {"d_model": 24, "d_ff": 16, "n_heads": 3, "n_encoder_layers": 1, "n_decoder_layers": 2, "dropout": 0.0}
    return build_model(TransformerConfig(vocab_size=TOKENIZER.vocab_size, **shape))


def objectives(model: Transformer, weight: float, **train: float) -> tuple[Objective, Objective]:
    plain = translation_objective(model, TOKENIZER.pad_id, TrainConfig(**train), padded=True)
    return plain, alignment_objective(plain, model, 1, weight, COLUMN, lambda row: PAIRS[row], TOKENIZER)


def test_first_head_equals_the_attention_kernel() -> None:
    model, batch = build(), batch_of([0, 1])
    attention = model.decoder.layers[0].cross_attn
    seen = []
    handle = attention.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs[:3]))
    with recording({"it": attention}) as weights:
        model(batch.src, batch.tgt_in, batch.src_mask)
    handle.remove()
    torch.testing.assert_close(first_head(attention, *seen), weights["it"][:, 0])


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_loss_by_hand(r_drop: float) -> None:
    """Row by row: minus the mean logarithm of the weights on linked source tokens."""
    model, rows = build(), [2, 0, 1]
    batch = batch_of(rows)
    plain, both = objectives(model, 0.5, r_drop=r_drop)
    with recording({"it": model.decoder.layers[1].cross_attn}) as weights:
        expected = plain(batch)
    error = 0.0
    for n, row in enumerate(rows):
        src, tgt = ([(len(TOKENIZER.encode(word)), word) for word in side.split()] for side in PAIRS[row])
        src_words = [i for i, (count, _) in enumerate(src) for _ in range(count)]
        tgt_words = [j for j, (count, _) in enumerate(tgt) for _ in range(count)]
        for t, j in enumerate(tgt_words):
            linked = [s for s, i in enumerate(src_words) if (i, j) in LINKS[row]]
            if linked:
                error -= weights["it"][n, 0, t, linked].log().mean().item()
    loss = both(batch)
    assert loss.figures["alignment"].item() == pytest.approx(error, rel=1e-4)
    assert loss.objective.item() == pytest.approx(expected.objective.item() + 0.5 * error, rel=1e-4)
    assert loss.nll.item() == pytest.approx(expected.nll.item())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_head_learns_the_links() -> None:
    model, batch = build(), batch_of([0, 1, 2])
    _, both = objectives(model, 1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = both(batch).figures["alignment"].item()
    for _ in range(60):
        optimizer.zero_grad()
        both(batch).objective.backward()
        optimizer.step()
    assert both(batch).figures["alignment"].item() < first / 2  # tokens with several links keep some entropy
    sources, targets = zip(*PAIRS, strict=True)
    found = align_with_torch(model.eval(), TOKENIZER, sources, targets, AlignmentHead(1, 0, "predicts"))
    assert found[0] >= set(LINKS[0])
    assert found[1] == set(LINKS[1])


def test_dropped_pairs_drop_their_links(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("", "b"), ("x " * 20, "y"), ("a", "b"), ("c d", "d c")]
    files = [tmp_path / "src", tmp_path / "tgt"]
    for path, side in zip(files, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side))
    links = tmp_path / "links"
    links.write_text("0-0\n\n7-0\n\n0-1 1-0\n")
    corpora = [Corpus((str(files[0]), str(files[1])))]
    prepared = prepare(corpora, TOKENIZER, TranslationData(max_length=20), tmp_path / "cache", progress=False)
    assert (len(prepared), prepared.dropped) == (3, {"one side is empty": 1, "longer than data.max_length": 1})
    column = corpus_links(str(links), corpora, prepared)
    assert [column[row].tolist() for row in range(3)] == [[0, 0], [], [0, 1, 1, 0]]
    links.write_text("0-0\n\n7-0\n\n0-1 2-0\n")
    with pytest.raises(UserError, match="line 5: link 2-0 is out of range"):
        corpus_links(str(links), corpora, prepared)


@pytest.mark.parametrize(
    "setting",
    ["data.bpe_dropout=0.1", "data.both_directions=0.3", "train.compile=true", "train.recompute=true"],
)
def test_incompatible_settings(setting: str) -> None:
    config = apply_settings(RunConfig(), ["train.alignment_weight=0.05", setting])
    with pytest.raises(UserError, match=f"train.alignment_weight does not work with {setting.split('=')[0]}"):
        check(config)


@pytest.mark.parametrize("other", ["model.architecture=recurrent", "model.task=denoise"])
def test_architectures_without_such_a_head(other: str) -> None:
    config = apply_settings(RunConfig(), ["train.alignment_weight=0.05", other])
    with pytest.raises(UserError, match=rf"train\.alignment_weight = 0\.05 is not used by {other.split('=')[0]}"):
        check(config)


def test_missing_layers() -> None:
    for layer in (6, -7):
        with pytest.raises(UserError, match=rf"train\.alignment_layer = {layer}.*layers 0.*5, -1"):
            check(apply_settings(RunConfig(), ["train.alignment_weight=0.05", f"train.alignment_layer={layer}"]))
    for layer in (0, 5, -1, -6):
        check(apply_settings(RunConfig(), ["train.alignment_weight=0.05", f"train.alignment_layer={layer}"]))
    check(apply_settings(RunConfig(), ["train.alignment_weight=0.05", "model.n_decoder_layers=1"]))
