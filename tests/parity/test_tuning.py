"""A published model is trained on as `transformers` trains it: the same loss, and the same gradient of every parameter.

Tiny random checkpoints that `transformers` saves. Masks are drawn by each program for itself, so dropout is off, or a
factor in the place of the mask, the same in both.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_families import write_tiny

from headwise.core.batches import collate
from headwise.core.dropout import Dropout
from headwise.errors import UserError
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.tasks.initial_model import model_settings
from headwise.pytorch.tasks.pretrained import extra_dropout_rates, make_trainable
from headwise.pytorch.training.extra_dropout import without_extra_dropout
from headwise.pytorch.training.packed import attention_for
from headwise.pytorch.training.step import batch_loss, projection, real_states
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD, EOS = 24, 1, 2
IDS = {"vocab_size": VOCAB, "pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 0}
BART = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40, "init_std": 0.4, "dropout": 0.0,
    "decoder_start_token_id": EOS, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 3, "decoder_start_token_id": PAD,
      "dropout_rate": 0.0}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("MarianMTModel", BART | {"decoder_start_token_id": PAD, "activation_function": "silu"}),
    "m2m_100": ("M2M100ForConditionalGeneration", BART | {"attention_dropout": 0.0}),
    "bart": ("BartForConditionalGeneration", BART),
    "mbart": ("MBartForConditionalGeneration", BART | {"scale_embedding": True}),
    "pegasus": ("PegasusForConditionalGeneration", BART | {"activation_function": "gelu_new"}),
    "t5": ("T5ForConditionalGeneration", T5 | {"tie_word_embeddings": True}),
    "t5 v1.1": ("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}
PAIRS = [([7, 5, 10, 3, 8], [8, 8, 4, 5]), ([4, 9], [3, 6, 20, 21, 22, 4, 5]), ([11], [12])]


@pytest.fixture(scope="module", params=CASES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The model in transformers, and the folder that it saves."""
    kind, values = CASES[request.param]
    model_class = getattr(transformers, kind)
    torch.manual_seed(3)
    theirs = model_class(model_class.config_class(**IDS | values))
    if hasattr(theirs, "final_logits_bias"):
        theirs.final_logits_bias.normal_()
    folder = tmp_path_factory.mktemp("tuning")
    theirs.save_pretrained(folder)
    return theirs.train(), read_folder(folder, dtype="float32")


def test_loss_and_gradients(both: tuple[Any, Any]) -> None:
    theirs, model = both
    start = theirs.config.decoder_start_token_id
    batch = collate(PAIRS, PAD, start, EOS)
    labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD, -100)
    loss = theirs(
        input_ids=batch.src, attention_mask=batch.src_mask.long(), decoder_input_ids=batch.tgt_in, labels=labels
    ).loss
    loss.backward()
    network = make_trainable(model.network, 0.0).train()
    weight, bias, scale = projection(network)
    own = batch_loss(lambda *x: real_states(network, *x), weight, batch, PAD, bias=bias, scale=scale).objective
    (own / batch.n_targets).backward()
    torch.testing.assert_close(own / batch.n_targets, loss, atol=1e-5, rtol=1e-5)
    gradients = {name: value.grad for name, value in network.named_parameters()}
    gradients = {name: torch.zeros(VOCAB) if value is None else value for name, value in gradients.items()}
    expected = {name: value.grad for name, value in theirs.named_parameters() if value.grad is not None}
    found = {key: value for key, value in file_tensors(gradients, model.config).items() if key in expected}
    assert len(found) > 20 and expected.keys() - found.keys() <= {"lm_head.weight"}
    if theirs.config.model_type == "marian":  # its start mark is padding's row, which is left alone there
        found["model.shared.weight"][PAD] = expected["model.shared.weight"][PAD]
    for key, value in found.items():
        torch.testing.assert_close(
            value, expected[key], atol=1e-5, rtol=1e-4, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_capped_logits_are_refused(tmp_path: Path) -> None:
    """The loss of translation multiplies by the output matrix in parts, without a cap."""
    write_tiny(tmp_path, "t5gemma")
    with pytest.raises(UserError, match=r"t5gemma has capped logits, with which only decoders can be trained$"):
        model_settings(str(tmp_path), "translate")


DROPPED = {  # rates that all differ, as far as a family has them
    "bart": {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3},
    "t5": {"dropout_rate": 0.25},
}


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def own_scaled(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    x = scaled(x, self.p, self.training)
    return x if residual is None else residual + x


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("layerdrop", [0.0, 1.0])
def test_everything_is_dropped_that_transformers_drops(
    kind: str, layerdrop: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same loss in training; layers are dropped all or none, which leaves nothing to chance."""
    (name, values), rates = CASES[kind], DROPPED["t5" if kind.startswith("t5") else "bart"]
    if layerdrop and kind.startswith("t5"):
        pytest.skip("T5 drops no layers")
    model_class = getattr(transformers, name)
    torch.manual_seed(3)
    drops = {} if kind.startswith("t5") else {"encoder_layerdrop": layerdrop, "decoder_layerdrop": layerdrop}
    config = model_class.config_class(**IDS | values | rates | drops)
    model_class(config).save_pretrained(tmp_path)
    theirs = model_class.from_pretrained(tmp_path, attn_implementation="eager").train()
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", own_scaled)
    start = config.decoder_start_token_id
    batch = collate(PAIRS, PAD, start, EOS)
    labels = batch.tgt_out.masked_fill(batch.tgt_out == PAD, -100)
    loss = theirs(
        input_ids=batch.src, attention_mask=batch.src_mask.long(), decoder_input_ids=batch.tgt_in, labels=labels
    ).loss
    folder = read_folder(tmp_path, dtype="float32")
    dropout = next(rates[name] for name in ("dropout", "dropout_rate") if name in rates)
    network = make_trainable(folder.network, dropout, extra_dropout_rates(folder.about, dropout)).train()
    assert not attention_for(network, batch.src_mask)

    def own_loss() -> torch.Tensor:
        weight, bias, scale = projection(network)
        own = batch_loss(lambda *x: real_states(network, *x), weight, batch, PAD, bias=bias, scale=scale).objective
        return own / batch.n_targets

    torch.testing.assert_close(own_loss(), loss, atol=1e-5, rtol=1e-5)
    plain = make_trainable(read_folder(tmp_path, dtype="float32").network, dropout)
    with without_extra_dropout(network):
        network.eval()
        assert attention_for(network, batch.src_mask) == attention_for(plain, batch.src_mask)
        without_all = own_loss()
    monkeypatch.undo()
    torch.testing.assert_close(own_loss(), without_all)  # put back, and silent where nothing is trained
    assert loss.item() != pytest.approx(without_all.item(), abs=1e-4)


def test_packed_where_nothing_is_added_to_scores(both: tuple[Any, Any]) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert (attention_for(both[1].network, mask) is None) == ("t5" in both[0].config.model_type)
