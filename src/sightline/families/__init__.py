"""The Transformer's families: each a table that says how its checkpoints map to our building blocks, in and out.

A family is one small file: `config_from_hf`, which reads a `config.json` in the Hugging Face layout into the axes of
`sightline.model.family_config`, and NAMES, which says where each tensor of a file belongs (`table`). No module of a
network is here; all families are made of `sightline.model`.
"""

from sightline.families import (
    bart,
    bert,
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
    mt5,
    qwen,
    roberta,
    t5,
    vit,
    whisper,
)
from sightline.families.family import Family

FAMILIES: dict[str, Family] = {  # by the `model_type` of config.json
    "bart": bart.FAMILY,
    "bert": bert.FAMILY,
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
    "mt5": mt5.FAMILY,
    "qwen2": qwen.FAMILY_2,
    "qwen3": qwen.FAMILY_3,
    "roberta": roberta.FAMILY,
    "t5": t5.FAMILY,
    "vit": vit.FAMILY,
    "whisper": whisper.FAMILY,
    "xlm-roberta": roberta.FAMILY,
}
