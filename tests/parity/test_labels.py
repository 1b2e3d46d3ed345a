"""Labels are learnt as `transformers` learns them: the same loss, gradients and dropouts, and fifty updates of AdamW.

Tiny random networks that `transformers` saves; where curves are compared dropout is off, for each program draws its own
masks.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.checkpoint.folder import read_folder
from sightline.network.dropout import Dropout
from sightline.tasks.trainable import head_dropout, more_dropout, trainable

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB, PAD = 30, 1
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
BERT = {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3} | SIZES
KINDS: dict[str, dict[str, Any]] = {
    "Bert": BERT,
    "Roberta": BERT | {"type_vocab_size": 1},
    "Electra": BERT | {"embedding_size": 8},
    "DistilBert": {"vocab_size": VOCAB, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": 3, "dim": 16,
                   "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
}  # fmt: skip
SRC = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, PAD, PAD], [13, 14, 15, 16, PAD]])
LABELS = torch.tensor([2, 0, 1])


def made(kind: str, head: str, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """A model in transformers, and ours made of the folder that it saves."""
    model_class = getattr(transformers, f"{kind}For{head}")
    torch.manual_seed(3)
    model_class(model_class.config_class(**KINDS[kind] | changes)).save_pretrained(folder)
    theirs = model_class.from_pretrained(folder, attn_implementation="eager")
    return theirs.train(), read_folder(folder, dtype="float32")


def scaled(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """What stands for dropout: no mask, but a factor by which a wrong rate, or one too few, would be seen."""
    return x * (1 - p / 2) if training else x


def own_scaled(self: Dropout, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    x = scaled(x, self.p, self.training)
    return x if residual is None else residual + x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("named", [True, False])
def test_everything_is_dropped_that_transformers_drops(
    kind: str, head: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that all differ; without `named` those of a config.json that says nothing of them."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.3}
    if kind == "DistilBert":
        rates = {"dropout": 0.1, "attention_dropout": 0.2, "seq_classif_dropout": 0.3}
    theirs, model = made(kind, head, tmp_path, **rates if named else {})
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    monkeypatch.setattr(Dropout, "forward", own_scaled)
    said = model.about if named else {key: value for key, value in model.about.items() if "dropout" not in key}
    more = head_dropout(more_dropout(said, 0.1), model.config, said, 0.1)
    own = trainable(model.network, 0.1, more).train()
    mask = SRC != PAD
    expected = theirs(input_ids=SRC, attention_mask=mask.long()).logits
    found = own(SRC, mask)
    real = mask if head.startswith("Token") else slice(None)
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
