"""A published model is trained on as `transformers` trains it: the same loss, and the same gradient of every parameter.

Tiny random checkpoints that `transformers` saves; dropout is off, for both draw masks of their own.
"""

import warnings
from typing import Any

import pytest
import torch

from sightline.checkpoint.folder import read_folder
from sightline.checkpoint.write import file_tensors
from sightline.data.batch import collate
from sightline.tasks.published import trainable
from sightline.training.packed import can_pack
from sightline.training.step import batch_loss, projection, real_states

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
    network = trainable(model.network, 0.0).train()
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


def test_packed_where_nothing_is_added_to_scores(both: tuple[Any, Any]) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert can_pack(both[1].network, mask) == ("t5" not in both[0].config.model_type)
