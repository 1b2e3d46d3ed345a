"""MPNet (arXiv:2004.09297): RoBERTa without segments and with relative positions, whose biases all layers share.

Its pretraining, on permuted tokens, leaves no trace in the network.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bert, roberta
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {
    "MPNetForMaskedLM": "masked",
    "MPNetModel": "none",
    "MPNetForSequenceClassification": "text_class",
    "MPNetForTokenClassification": "token_class",
    "MPNetForQuestionAnswering": "span",
}
PAD_ID = 1  # of positions, whatever pad_token_id is
BUCKETS = 32  # of relative positions; transformers computes with them, whatever the file says
_LAYER, _OURS = "mpnet.encoder.layer.{i}.", "encoder.layers.{i}."
NAMES = {
    "mpnet.embeddings.word_embeddings": "embeddings.tokens",
    "mpnet.embeddings.position_embeddings": "embeddings.positions.table",
    "mpnet.embeddings.LayerNorm": "embeddings.norm",
    "mpnet.encoder.relative_attention_bias": "encoder.reach.buckets",
    f"{_LAYER}attention.attn.q": f"{_OURS}self_attn.q_proj",
    f"{_LAYER}attention.attn.k": f"{_OURS}self_attn.k_proj",
    f"{_LAYER}attention.attn.v": f"{_OURS}self_attn.v_proj",
    f"{_LAYER}attention.attn.o": f"{_OURS}self_attn.o_proj",
    f"{_LAYER}attention.LayerNorm": f"{_OURS}self_attn_sublayer.norm",
    f"{_LAYER}intermediate.dense": f"{_OURS}ffn.up_proj",
    f"{_LAYER}output.dense": f"{_OURS}ffn.down_proj",
    f"{_LAYER}output.LayerNorm": f"{_OURS}ffn_sublayer.norm",
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("relative_attention_num_buckets", BUCKETS)
    stack, head = bert.stack_from_hf(k), k.head(HEADS)
    k.refuse(stack.max_len <= PAD_ID + 1, f"max_position_embeddings = {stack.max_len} leaves no positions")
    encoder = replace(
        stack,
        n_types=0,
        max_len=stack.max_len - PAD_ID - 1,
        position_offset=PAD_ID + 1,
        count_from=PAD_ID,
        relative_buckets=BUCKETS,
    )
    config = bert.config_of_encoder("mpnet", k, encoder, head, "tanh" if head == "text_class" else "gelu")
    k.done()
    return config


DROPOUT = FamilyDropout(more=bert.ATTENTION_DROPOUT, heads={}, pooled=True)
FAMILY = Family(
    config_from_hf,
    NAMES,
    roberta.head_names,
    prefix="mpnet.",
    heads=HEADS,
    ignored=r"position_ids$|^mpnet\.pooler\.|^lm_head\.bias$",
    same={"lm_head.decoder.bias": "lm_head.bias"},
    traits=Traits("MPNetTokenizer", head_classes="MPNet", dropout=DROPOUT),
)
