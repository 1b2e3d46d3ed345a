"""RoBERTa (arXiv:1907.11692): BERT trained longer; positions start at pad_id + 1 and do not count padding.

XLM-R (arXiv:1911.02116) is the same for a hundred languages, CamemBERT (arXiv:1911.03894) for French.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

KINDS = {
    "ForMaskedLM": "masked",
    "Model": "none",
    "ForSequenceClassification": "text_class",
    "ForTokenClassification": "token_class",
    "ForQuestionAnswering": "span",
}
HEADS = {name + kind: head for name in ("Roberta", "XLMRoberta", "Camembert") for kind, head in KINDS.items()}
NAMES = {f"roberta.{key}": name for key, name in bert.LAYERS.items()} | {
    "roberta.embeddings.position_embeddings": "embeddings.positions.table",
}


def head_names(config: NetworkConfig) -> dict[str, str]:
    """The names of the network's head."""
    heads = {
        "masked": {
            "lm_head.dense": "head.dense",
            "lm_head.layer_norm": "head.norm",
            **bert.output_names(config, "lm_head.bias", "lm_head.decoder"),
        },
        "text_class": {"classifier.dense": "head.pool", "classifier.out_proj": "head.classes"},
        "token_class": {"classifier": "head.classes"},
        "span": {"qa_outputs": "head.classes"},
    }
    return heads.get(config.head, {})


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    stack, head, pad_id = bert.stack_from_hf(k), k.head(HEADS), k.size("pad_token_id", default=1, least=0)
    k.refuse(
        stack.max_len <= pad_id + 1,
        f"max_position_embeddings = {stack.max_len} leaves no positions after pad_token_id = {pad_id}",
    )
    config = bert.config_of_encoder(
        "roberta",
        k,
        replace(stack, max_len=stack.max_len - pad_id - 1, position_offset=pad_id + 1, count_from=pad_id),
        head,
        "tanh" if head == "text_class" else "gelu",
    )
    k.done()
    return config


DROPOUT = FamilyDropout(more=bert.ATTENTION_DROPOUT, pooled=True)
FAMILY = Family(
    config_from_hf,
    NAMES,
    head_names,
    prefix="roberta.",
    heads=HEADS,
    ignored=r"position_ids$|^roberta\.pooler\.|^lm_head\.bias$",
    same={"lm_head.decoder.bias": "lm_head.bias"},
    traits=Traits("RobertaTokenizer", head_classes="Roberta", dropout=DROPOUT),
)
CAMEMBERT = replace(FAMILY, traits=replace(FAMILY.traits, tokenizer="CamembertTokenizer", head_classes="Camembert"))
XLM = replace(FAMILY, traits=replace(FAMILY.traits, tokenizer="XLMRobertaTokenizer", head_classes="XLMRoberta"))
