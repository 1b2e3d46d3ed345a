"""All families by `model_type` in config.json."""

from collections.abc import Mapping
from typing import Any

from headwise.families import (
    albert,
    bart,
    bert,
    deberta_v2,
    deit,
    distilbert,
    electra,
    gemma,
    gpt2,
    gpt_neox,
    llama,
    m2m_100,
    marian,
    mbart,
    mistral,
    modernbert,
    mpnet,
    mt5,
    pegasus,
    qwen,
    roberta,
    t5,
    t5gemma,
    vision_encoder_decoder,
    vit,
    whisper,
)
from headwise.families.family import Family

FAMILIES: dict[str, Family] = {
    "albert": albert.FAMILY,
    "bart": bart.FAMILY,
    "bert": bert.FAMILY,
    "camembert": roberta.FAMILY,
    "deberta-v2": deberta_v2.FAMILY,
    "deit": deit.FAMILY,
    "distilbert": distilbert.FAMILY,
    "electra": electra.FAMILY,
    "gemma": gemma.FAMILY,
    "gemma2": gemma.FAMILY_2,
    "gpt2": gpt2.FAMILY,
    "gpt_neox": gpt_neox.FAMILY,
    "llama": llama.FAMILY,
    "m2m_100": m2m_100.FAMILY,
    "marian": marian.FAMILY,
    "mbart": mbart.FAMILY,
    "mistral": mistral.FAMILY,
    "modernbert": modernbert.FAMILY,
    "mpnet": mpnet.FAMILY,
    "mt5": mt5.FAMILY,
    "pegasus": pegasus.FAMILY,
    "qwen2": qwen.FAMILY_2,
    "qwen3": qwen.FAMILY_3,
    "roberta": roberta.FAMILY,
    "t5": t5.FAMILY,
    "t5gemma": t5gemma.FAMILY,
    "vision-encoder-decoder": vision_encoder_decoder.FAMILY,
    "vit": vit.FAMILY,
    "whisper": whisper.FAMILY,
    "xlm-roberta": roberta.FAMILY,
}


def missing_head(values: Mapping[str, Any], head: str) -> str:
    """The class that a config.json names, if the network was read without the head of this class; otherwise ""."""
    family, names = FAMILIES.get(str(values.get("model_type"))), values.get("architectures")
    saved = str(names[0]) if isinstance(names, list) and names else ""
    return saved if head == "none" and family and family.heads.get(saved, "none") != "none" else ""
