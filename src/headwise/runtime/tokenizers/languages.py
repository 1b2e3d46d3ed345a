"""Source and target language of multilingual models, by family.

M2M-100, NLLB and mBART-50 put a code before the source and force one at the start of the output; NLLB with
`legacy_behaviour` puts it after the source. So does mBART, which starts outputs with the target's. Marian has
`>>code<<` in the text, and T5 a prefix in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.contract import SpecialIds
from headwise.errors import UserError
from headwise.families.registry import traits_of
from headwise.runtime.tokenizers.special_tokens import tokenizer_values
from headwise.runtime.tokenizers.tokenizer_classes import class_of
from headwise.runtime.tokenizers.vocabulary import Vocabulary, marks_around

COMMON = ("__en__", "__de__", "__fr__", "eng_Latn", "deu_Latn", "en_XX", "de_DE")


@dataclass(frozen=True)
class Languages:
    """The languages of a model."""

    family: str
    vocabulary: Vocabulary
    hf_config: Mapping[str, Any]
    tokenizer_class: str  # of tokenizer_config.json, config.json or the family
    legacy_behaviour: bool = False  # of NLLB: a source ends with its code

    @property
    def coded(self) -> bool:
        """Whether codes of languages are tokens around a text."""
        return traits_of(self.family).language_codes

    def encode(self, text: str, source: str, target: str) -> list[int]:
        """The ids of a text for translation from `source` to `target`; "" if the model needs no language."""
        if not self.coded:
            return self.vocabulary.encode(self._prefix(source, target) + text)
        ids = self.vocabulary.encode(text)
        if not source:
            return ids
        before, behind = marks_around(self.vocabulary.encode(""), ids)
        bare, end, code = ids[before : len(ids) - behind], self._end, self.code(source)
        return [*bare, end, code] if self._code_behind else [code, *bare, end]

    def special(self, special: SpecialIds, target: str) -> SpecialIds:
        """The special ids of the decoder for `target`."""
        if not self.coded or not target:
            return special
        if self._is_mbart:
            return replace(special, bos_id=self.code(target))
        return replace(special, forced=(self.code(target),))

    def check(self, source: str, target: str, special: SpecialIds) -> None:
        """`UserError` if the model does not know a language, or one is missing; `special` are the model's own ids."""
        for language in (source, target) if self.coded else ():
            _ = language and self.code(language)
        if not self.coded or not self._has_codes:
            return
        known = target or special.forced or self._is_mbart
        if not known or not (source or len(self.vocabulary.encode("")) > 1):
            raise UserError(
                f"a multilingual model ({self.family}) needs source_language and target_language (on the command line "
                "--source-language and --target-language)"
            )

    @property
    def _has_codes(self) -> bool:
        """Whether the vocabulary has one of the most common languages."""
        return any(self.vocabulary.id_of(code) is not None for code in COMMON)

    def code(self, language: str) -> int:
        """The id of a language code; `UserError` if there is none."""
        for piece in (language, f"__{language}__"):
            found = self.vocabulary.id_of(piece)
            if found is not None:
                return found
        form = "de" if self.family == "m2m_100" and self.vocabulary.id_of("__de__") is not None else "deu_Latn or de_DE"
        raise UserError(f"language '{language}': this model has no such code; codes look like {form}")

    def _prefix(self, source: str, target: str) -> str:
        """The text before the source."""
        if not target:
            return ""
        if self.vocabulary.id_of(f">>{target}<<") is not None:
            return f">>{target}<< "
        tasks = self.hf_config.get("task_specific_params") or {}
        prefix = (tasks.get(f"translation_{source}_to_{target}") or {}).get("prefix")
        if prefix is None:
            raise UserError(
                f"language '{target}': this model ({self.family}) defines no prefix for it; leave languages out, or "
                "use an instruction"
            )
        return prefix

    @property
    def _code_behind(self) -> bool:
        return self._is_mbart or (self.tokenizer_class == "NllbTokenizer" and self.legacy_behaviour)

    @property
    def _is_mbart(self) -> bool:
        return self.tokenizer_class == "MBartTokenizer"

    @property
    def _end(self) -> int:
        end = self.vocabulary.id_of("</s>")
        assert end is not None, "all families with language codes have this end token"
        return end


def read_languages(folder: Path, family: str, vocabulary: Vocabulary, hf_config: Mapping[str, Any]) -> Languages:
    """The languages of the model in `folder`."""
    settings = tokenizer_values(folder)
    name, legacy = class_of(settings, hf_config), bool(settings.get("legacy_behaviour", False))
    return Languages(family, vocabulary, hf_config, name, legacy)
