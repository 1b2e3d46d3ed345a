"""DistilBERT (arXiv:1910.01108): BERT with half of its layers and without segments."""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

HEADS = {
    "DistilBertForMaskedLM": "masked",
    "DistilBertModel": "none",
    "DistilBertForSequenceClassification": "text_class",
    "DistilBertForTokenClassification": "token_class",
    "DistilBertForQuestionAnswering": "span",
}
_LAYER, _OURS = "distilbert.transformer.layer.{i}.", "encoder.layers.{i}."
NAMES = {
    "distilbert.embeddings.word_embeddings": "embeddings.tokens",
    "distilbert.embeddings.position_embeddings": "embeddings.positions.table",
    "distilbert.embeddings.LayerNorm": "embeddings.norm",
    f"{_LAYER}attention.q_lin": f"{_OURS}self_attn.q_proj",
    f"{_LAYER}attention.k_lin": f"{_OURS}self_attn.k_proj",
    f"{_LAYER}attention.v_lin": f"{_OURS}self_attn.v_proj",
    f"{_LAYER}attention.out_lin": f"{_OURS}self_attn.o_proj",
    f"{_LAYER}sa_layer_norm": f"{_OURS}self_attn_sublayer.norm",
    f"{_LAYER}ffn.lin1": f"{_OURS}ffn.up_proj",
    f"{_LAYER}ffn.lin2": f"{_OURS}ffn.down_proj",
    f"{_LAYER}output_layer_norm": f"{_OURS}ffn_sublayer.norm",
}
HEAD_NAMES = {
    "masked": {
        "vocab_transform": "head.dense",
        "vocab_layer_norm": "head.norm",
        "vocab_projector.bias": "head.output.bias",
        "vocab_projector.weight": "head.output.weight",
    },
    "text_class": {"pre_classifier": "head.pool", "classifier": "head.classes"},
    "token_class": {"classifier": "head.classes"},
    "span": {"qa_outputs": "head.classes"},
}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    (d_model, n_heads, d_head), head = k.heads("dim", "n_heads"), k.head(HEADS)
    stack = StackConfig(
        d_model=d_model,
        n_layers=k.layers("n_layers"),
        n_heads=n_heads,
        d_ff=k.size("hidden_dim"),
        d_head=d_head,
        activation=k.activation("activation", "gelu"),
        norm_eps=1e-12,
        norm_position="post",
        positions="learned",
        max_len=k.size("max_position_embeddings", default=512),
        embedding_norm=True,
    )
    config = bert.config_of_encoder("distilbert", k, stack, head, "relu" if head == "text_class" else stack.activation)
    k.done(ignored="qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_")  # positions are in the file
    return config


DROPOUT = FamilyDropout(
    more={"attention_dropout": 0.1},
    heads={"text_class": ("seq_classif_dropout", 0.2), "span": ("qa_dropout", 0.1)},
    whole_attention=True,
)
FAMILY = Family(
    config_from_hf,
    NAMES,
    lambda c: HEAD_NAMES.get(c.head, {}),
    prefix="distilbert.",
    heads=HEADS,
    ignored=r"position_ids$",
    traits=Traits("BertTokenizer", head_classes="DistilBert", dropout=DROPOUT),
)
