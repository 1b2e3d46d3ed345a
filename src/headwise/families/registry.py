"""All families by `model_type` in config.json."""

from collections.abc import Mapping
from typing import Any

from headwise.families.family import Family, Traits
from headwise.importing import Table

FAMILIES: Table[Family] = Table(
    {
        "albert": "headwise.families.albert:FAMILY",
        "bart": "headwise.families.bart:FAMILY",
        "bert": "headwise.families.bert:FAMILY",
        "camembert": "headwise.families.roberta:CAMEMBERT",
        "deberta-v2": "headwise.families.deberta_v2:FAMILY",
        "deit": "headwise.families.deit:FAMILY",
        "distilbert": "headwise.families.distilbert:FAMILY",
        "electra": "headwise.families.electra:FAMILY",
        "gemma": "headwise.families.gemma:FAMILY",
        "gemma2": "headwise.families.gemma:FAMILY_2",
        "gpt2": "headwise.families.gpt2:FAMILY",
        "gpt_neox": "headwise.families.gpt_neox:FAMILY",
        "llama": "headwise.families.llama:FAMILY",
        "m2m_100": "headwise.families.m2m_100:FAMILY",
        "marian": "headwise.families.marian:FAMILY",
        "mbart": "headwise.families.mbart:FAMILY",
        "mistral": "headwise.families.mistral:FAMILY",
        "modernbert": "headwise.families.modernbert:FAMILY",
        "mpnet": "headwise.families.mpnet:FAMILY",
        "mt5": "headwise.families.mt5:FAMILY",
        "pegasus": "headwise.families.pegasus:FAMILY",
        "qwen2": "headwise.families.qwen:FAMILY_2",
        "qwen3": "headwise.families.qwen:FAMILY_3",
        "roberta": "headwise.families.roberta:FAMILY",
        "t5": "headwise.families.t5:FAMILY",
        "t5gemma": "headwise.families.t5gemma:FAMILY",
        "vision-encoder-decoder": "headwise.families.vision_encoder_decoder:FAMILY",
        "vit": "headwise.families.vit:FAMILY",
        "whisper": "headwise.families.whisper:FAMILY",
        "xlm-roberta": "headwise.families.roberta:XLM",
    }
)

OTHERS = {  # kinds of checkpoints that are read elsewhere, or are a part of others
    "gemma3_text": Traits("GemmaTokenizer"),
    "xlnet": Traits("XLNetTokenizer", head_classes="XLNet"),
}


def traits_of(kind: object) -> Traits:
    """The traits of the family with this `model_type`; of an unknown one the defaults."""
    family = FAMILIES.get(str(kind))
    return family.traits if family else OTHERS.get(str(kind), Traits())


def missing_head(values: Mapping[str, Any], head: str) -> str:
    """The class that a config.json names, if the network was read without the head of this class; otherwise ""."""
    family, names = FAMILIES.get(str(values.get("model_type"))), values.get("architectures")
    saved = str(names[0]) if isinstance(names, list) and names else ""
    return saved if head == "none" and family and family.heads.get(saved, "none") != "none" else ""
