"""DeBERTa v2 and v3 (arXiv:2006.03654, 2111.09543): BERT with disentangled attention.

Scores are sums of products of contents with contents, and with the vectors of relative positions. The model of v3 was
trained as ELECTRA's discriminator; its network is that of v2. The enhanced mask decoder of the paper, with absolute
positions, is not part of published files. Version 1, whose projections differ, and the convolution in the largest
models of version 2 are not supported.
"""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys, short_value

HEADS = {
    "DebertaV2Model": "none",  # the first: files of v3 name no class, and have none of these heads
    "DebertaV2ForMaskedLM": "masked",
    "DebertaV2ForSequenceClassification": "text_class",
    "DebertaV2ForTokenClassification": "token_class",
    "DebertaV2ForQuestionAnswering": "span",
}
_LAYER, _OURS = "deberta.encoder.layer.{i}.", "encoder.layers.{i}."
NAMES = {
    "deberta.embeddings.word_embeddings": "embeddings.tokens",
    "deberta.embeddings.position_embeddings": "embeddings.positions.table",
    "deberta.embeddings.token_type_embeddings": "embeddings.types",
    "deberta.embeddings.LayerNorm": "embeddings.norm",
    "deberta.encoder.rel_embeddings": "encoder.reach.table",
    "deberta.encoder.LayerNorm": "encoder.reach.norm",
    f"{_LAYER}attention.self.query_proj": f"{_OURS}self_attn.q_proj",
    f"{_LAYER}attention.self.key_proj": f"{_OURS}self_attn.k_proj",
    f"{_LAYER}attention.self.value_proj": f"{_OURS}self_attn.v_proj",
    f"{_LAYER}attention.output.dense": f"{_OURS}self_attn.o_proj",
    f"{_LAYER}attention.output.LayerNorm": f"{_OURS}self_attn_sublayer.norm",
    f"{_LAYER}intermediate.dense": f"{_OURS}ffn.up_proj",
    f"{_LAYER}output.dense": f"{_OURS}ffn.down_proj",
    f"{_LAYER}output.LayerNorm": f"{_OURS}ffn_sublayer.norm",
}
TERMS = ("c2p", "p2c")


def head_names(config: NetworkConfig) -> dict[str, str]:
    """The names of the network's head."""
    pooled = {"pooler.dense": "head.pool", "classifier": "head.classes"}
    return pooled if config.head == "text_class" else bert.head_names(config)


def stack_from_hf(k: Keys) -> StackConfig:
    """The encoder."""
    k.only("is_decoder", False)
    k.only("conv_kernel_size", 0)
    for needed in ("relative_attention", "share_att_key"):
        k.refuse(not k.flag(needed, default=False), f"{needed} = False is not supported, only True")
    d_model, n_heads, d_head = k.heads("hidden_size", "num_attention_heads", "attention_head_size")
    k.refuse(d_head * n_heads != d_model, f"{n_heads} heads of attention_head_size = {d_head} do not make {d_model}")
    width = k.size("embedding_size", default=d_model)
    k.refuse(width != d_model, f"embedding_size = {width} is not hidden_size = {d_model}, which is not supported")
    longest, types = k.size("max_position_embeddings", default=512), k.size("type_vocab_size", default=0, least=0)
    farthest, buckets = k.size("max_relative_positions", default=-1, least=-1), k.size("position_buckets", least=4)
    farthest = longest if farthest < 1 else farthest
    k.refuse(farthest <= buckets // 2 + 1, f"max_relative_positions = {farthest} is too small for {buckets} buckets")
    terms = _terms(k)
    return StackConfig(
        d_model=d_model,
        n_layers=k.layers("num_hidden_layers"),
        n_heads=n_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        score_scale=(d_head * (1 + len(terms))) ** -0.5,
        activation=k.activation("hidden_act", "gelu"),
        norm_eps=k.fraction("layer_norm_eps", default=1e-7),
        norm_position="post",
        positions="learned" if k.flag("position_biased_input", default=True) else "none",
        max_len=longest if k.flag("position_biased_input", default=True) else 0,
        relative_buckets=buckets,
        relative_distance=farthest,
        embedding_norm=True,
        n_types=types,
        disentangled="|".join(terms),
        relative_norm=k.choice("norm_rel_ebd", table={"none": "", "layer_norm": "norm"}, default="none") == "norm",
    )


def _terms(k: Keys) -> list[str]:
    """The terms of the scores in `pos_att_type`: a string with bars, or a list in newer files."""
    named = k.values.get("pos_att_type")
    terms = named if isinstance(named, list) else k.word("pos_att_type", default="").lower().split("|")
    k.only("pos_att_type", named)
    listed = [term.strip() for term in terms if isinstance(term, str)]
    wrong = not listed or len(listed) != len(terms) or len(set(listed)) != len(listed) or not set(listed) <= {*TERMS}
    k.refuse(wrong, f"pos_att_type = {short_value(named)} is not supported, only c2p, p2c or c2p|p2c")
    return sorted(listed)


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    stack, head = stack_from_hf(k), k.head(HEADS)
    if head == "masked":
        k.only("legacy", True)
    width = k.size("pooler_hidden_size", default=stack.d_model)
    k.refuse(width != stack.d_model, f"pooler_hidden_size = {width} is not hidden_size = {stack.d_model}")
    pooler = k.activation("pooler_hidden_act", "gelu")
    config = bert.config_of_encoder("deberta-v2", k, stack, head, pooler if head == "text_class" else stack.activation)
    k.done(ignored="legacy cls_dropout conv_act conv_groups z_steps")
    return config


DROPOUT = FamilyDropout(more=bert.ATTENTION_DROPOUT, heads={"text_class": ("cls_dropout", None)})
FAMILY = Family(
    config_from_hf,
    NAMES,
    head_names,
    prefix="deberta.",
    heads=HEADS,
    # Files of v3 have absolute positions that the network does not add.
    ignored=r"position_ids$|^deberta\.embeddings\.position_embeddings\.|^cls\.predictions\.bias$",
    same={"cls.predictions.decoder.bias": "cls.predictions.bias"},
    traits=Traits("DebertaV2Tokenizer", head_classes="DebertaV2", dropout=DROPOUT),
)
