"""Candidates in the order of a cross-encoder's scores. Not here: the logits (`headwise.models.classifier`)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import UserError

ACTIVATIONS = ("Sigmoid", "Identity")  # of sentence-transformers, by the class in torch


@dataclass(frozen=True)
class RankedText:
    """A candidate with its score."""

    index: int  # in the list of candidates, from 0
    score: float
    text: str

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def ranked_texts(candidates: Sequence[str], scores: Sequence[float]) -> list[RankedText]:
    """The candidates, best first; equal ones in their order.

    >>> [one.index for one in ranked_texts(["a", "b", "c"], [0.1, 0.7, 0.1])]
    [1, 0, 2]
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [RankedText(i, scores[i], candidates[i]) for i in order]


def score_activation(hf_config: Mapping[str, Any]) -> str:
    """The function of the scores: that of config.json, or Sigmoid, as in `CrossEncoder` of sentence-transformers.

    https://github.com/UKPLab/sentence-transformers/blob/v5.1.0/sentence_transformers/cross_encoder/CrossEncoder.py

    >>> score_activation({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})
    'Identity'
    """
    newer = (hf_config.get("sentence_transformers") or {}).get("activation_fn")
    named = newer or hf_config.get("sbert_ce_default_activation_function") or ACTIVATIONS[0]
    found = str(named).rpartition(".")[2]
    if found not in ACTIVATIONS:
        raise UserError(f"config.json: the activation function {named} is not supported, only {', '.join(ACTIVATIONS)}")
    return found
