"""Translations that keep to a glossary: its terms become phrases that the search must write, or marks in the source.

The target of each term in a source is a phrase for `decode.phrases`. A text for which no output with all of them has
room is translated without. A model that has learnt from annotated sources (`annotation`) is told by them instead, and
writes a term in the form that fits, or not at all. What is to stay as it is goes as a mark through a model that has
learnt marks (`localisation.carrying`), and is a phrase for any other. Not here: files (`reading`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sightline.config.settings import SearchSettings
from sightline.contract import Draft, Hypothesis
from sightline.decode.engine import decode_tokens
from sightline.decode.request import TooLarge
from sightline.decode.translator import Translation, Translator, clean_text
from sightline.errors import UserError
from sightline.glossary.annotation import annotated, knows_annotations
from sightline.glossary.reading import Given, glossary_of
from sightline.glossary.terms import Glossary
from sightline.localisation.carrying import codes_of, marked, unmarked
from sightline.localisation.fill import knows_marks
from sightline.localisation.unit import Code, Parts, joined, plain

LEAST_BEAM = (
    8  # with fewer a bank for each piece is too narrow; a beam of one would write the terms before anything else
)


def keeping_to(translator: Translator, given: Given) -> Translator:
    """A translator that keeps to the terms given, as `glossary_of` takes them."""
    return GlossaryTranslator(translator, glossary_of(given))


class GlossaryTranslator(Translator):
    """A translator that keeps to a glossary; everything else is as `plain` has it."""

    def __init__(self, plain: Translator, glossary: Glossary) -> None:
        vars(self).update(vars(plain))
        self._plain, self.glossary = plain, glossary
        self._annotates = knows_annotations(plain.tokenizer)

    def translate(
        self, texts: Sequence[str], prefix: str = "", draft: Draft | None = None, **overrides: Any
    ) -> list[Translation]:
        """As `Translator.translate`. What stays as it is goes through as a mark, where that comes back."""
        found: dict[int, Translation] = {}
        if knows_marks(self.tokenizer):
            kept = {n: parts for n, text in enumerate(texts) if (parts := self._with_codes(text))}
            said = {n: text for n, parts in kept.items() if (text := marked(parts))}
            translated = super().translate([self._told(text) for text in said.values()], prefix, draft, **overrides)
            found = {n: whole for n, t in zip(said, translated, strict=True) if (whole := _restored(kept[n], t))}
        others = [n for n in range(len(texts)) if n not in found]
        rest = super().translate([self._told(texts[n]) for n in others], prefix, draft, **overrides)
        found |= dict(zip(others, rest, strict=True))
        for n, text in enumerate(texts):
            self.glossary.note(text, found[n].text)
        return [found[n] for n in range(len(texts))]

    def search(
        self, sources: list[list[list[int]]], prefix: list[int], config: SearchSettings, draft: Draft | None = None
    ) -> list[list[Hypothesis]]:
        """As `Translator.search`; a part for which there is no room is searched for without its terms."""
        if config.sample or draft:
            raise UserError("a glossary is kept to by beam search: leave out sample, and drafts")
        parts = [tokens for text in sources for tokens in text]
        prefixes = [prefix if i == 0 else [] for text in sources for i in range(len(text))]
        texts = [i for i, text in enumerate(sources) for _ in text]
        phrases = self.phrases(parts)
        found: list[list[Hypothesis]] = [[] for _ in parts]

        def fill(rows: list[int], config: SearchSettings, wanted: list[list[list[int]]] | None) -> None:
            asked = [parts[i] for i in rows], config, self.special, [prefixes[i] for i in rows]
            try:
                results = decode_tokens(self.form(config), *asked, self.max_len, self.offered(config), wanted)
            except TooLarge as error:
                raise TooLarge(texts[rows[error.index]], error.why) from None
            for i, ranked in zip(rows, results, strict=True):
                found[i] = ranked

        bound = [i for i, wanted in enumerate(phrases) if wanted]
        wide = replace(config, beam_size=max(config.beam_size, LEAST_BEAM))
        fill(bound, wide, [phrases[i] for i in bound])
        fill([i for i, ranked in enumerate(found) if not ranked], config, None)
        return found

    def phrases(self, parts: Sequence[Sequence[int]]) -> list[list[list[int]]]:
        """The targets of the terms in each part, in pieces; not those with pieces that nobody can write.

        For a model that is told of terms in its source, those alone that stay as they are.
        """
        texts = [self.tokenizer.decode(list(part)) for part in parts]
        matches = [[match.term for match in self.glossary.matches(text)] for text in texts]
        wanted = [dict.fromkeys(t.target for t in of if t.is_kept or not self._annotates) for of in matches]
        pieces = [[self.encode_prefix(target) for target in targets] for targets in wanted]
        return [[one for one in of if self.tokenizer.unk_id not in one] for of in pieces]

    def _told(self, text: str) -> str:
        """A text with its terms annotated, for a model that heeds that; but for what stays as it is."""
        if not self._annotates:
            return text
        return annotated(text, [match for match in self.glossary.matches(text) if not match.term.is_kept])

    def _with_codes(self, text: str) -> Parts | None:
        """A text with what stays as it is for codes; None where there is nothing of that kind."""
        text, at = clean_text(text), 0
        pieces: list[str | Code] = []
        for match in self.glossary.matches(text):
            if match.term.is_kept:
                pieces += [text[at : match.start], Code(match.term.target)]
                at = match.end
        return joined([*pieces, text[at:]]) if pieces else None


def _restored(parts: Parts, translation: Translation) -> Translation | None:
    """A translation with marks as one of the text; None where a mark is lost, and no alternative that lost one."""
    codes = codes_of(parts)
    whole = unmarked(translation.text, codes)
    if whole is None:
        return None
    others = [one for other in translation.alternatives if (one := _restored(parts, other))]
    return replace(translation, text=plain(whole), alternatives=tuple(others))
