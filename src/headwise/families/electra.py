"""ELECTRA (arXiv:2003.10555): BERT as a discriminator of replaced tokens, and its generator.

Embeddings may be narrower than the layers, with a projection between them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import WIDEST, Keys

HEADS = {
    "ElectraForPreTraining": "replaced",  # the discriminator; the generator is a BERT
    "ElectraModel": "none",
    "ElectraForSequenceClassification": "text_class",
    "ElectraForTokenClassification": "token_class",
    "ElectraForQuestionAnswering": "span",
    "ElectraForMaskedLM": "masked",
}
NAMES = {f"electra.{key}": name for key, name in bert.LAYERS.items()} | {
    "electra.embeddings.position_embeddings": "embeddings.positions.table",
    "electra.embeddings_project": "embeddings.project",
}
HEAD_NAMES = {
    "masked": {
        "generator_predictions.dense": "head.dense",
        "generator_predictions.LayerNorm": "head.norm",
        "generator_lm_head.bias": "head.output.bias",
        "generator_lm_head.weight": "head.output.weight",
    },
    "replaced": {
        "discriminator_predictions.dense": "head.dense",
        "discriminator_predictions.dense_prediction": "head.output",
    },
    "text_class": {"classifier.dense": "head.pool", "classifier.out_proj": "head.classes"},
    "token_class": {"classifier": "head.classes"},
    "span": {"qa_outputs": "head.classes"},
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    stack, head = bert.stack_from_hf(k), k.head(HEADS)
    config = bert.config_of_encoder(
        "electra",
        k,
        replace(stack, d_embedding=k.size("embedding_size", default=stack.d_model, most=WIDEST)),
        head,
        "gelu" if head in ("text_class", "masked") else stack.activation,
    )
    k.done()
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network; see `bert.network_to_hf`."""
    assert config.encoder
    return {**bert.network_to_hf(config, HEADS), "embedding_size": config.encoder.d_embedding}


DROPOUT = FamilyDropout(more=bert.ATTENTION_DROPOUT, pooled=True)
FAMILY = Family(
    config_from_hf,
    NAMES,
    lambda c: HEAD_NAMES.get(c.head, {}),
    prefix="electra.",
    heads=HEADS,
    ignored=r"position_ids$",
    config_to_hf=config_to_hf,
    traits=Traits("BertTokenizer", head_classes="Electra", dropout=DROPOUT),
)
