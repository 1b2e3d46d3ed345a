"""The name of a folder's class of tokenizers, found as `AutoTokenizer` of transformers 5 finds it.

Not here: what the classes do (`tokenizer_classes`).
"""

from collections.abc import Mapping
from typing import Any

REGISTERED = {  # the classes of families, where no file names one; None: tokenizer.json as it is
    "albert": "AlbertTokenizer",
    "bart": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "m2m_100": "M2M100Tokenizer",
    "marian": "MarianTokenizer",
    "mbart": "MBartTokenizer",
    "mistral": None,
    "modernbert": None,
    "mpnet": "MPNetTokenizer",
    "mt5": "T5Tokenizer",
    "pegasus": "PegasusTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer",
    "t5gemma": "GemmaTokenizer",
    "whisper": "WhisperTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlnet": "XLNetTokenizer",
}
UNTRUSTED = ("mistral", "modernbert", "qwen2")  # families whose published files name wrong classes
OTHER_NAMES = {
    "BartTokenizer": "RobertaTokenizer",
    "DistilBertTokenizer": "BertTokenizer",
    "ElectraTokenizer": "BertTokenizer",
    "MT5Tokenizer": "T5Tokenizer",
}


def class_of(settings: Mapping[str, Any], hf_config: Mapping[str, Any]) -> str:
    """The name of a folder's class of tokenizers; "" if no file names one, and its family has none.

    That of tokenizer_config.json, else that of config.json, else that of the family.
    """
    family = str(hf_config.get("model_type") or "")
    named = str(settings.get("tokenizer_class") or hf_config.get("tokenizer_class") or "").removesuffix("Fast")
    named = OTHER_NAMES.get(named, named)
    registered = REGISTERED.get(family)
    if not named or (family in UNTRUSTED and registered != named):
        return registered or ""
    return "" if family in REGISTERED and registered is None and named != "LlamaTokenizer" else named
