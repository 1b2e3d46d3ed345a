"""Translation with a glossary: its terms become required phrases of the search, or annotations in the source.

The target of each term in a source is a required phrase (`pytorch.search.phrases`). If no output has room for all
phrases, the text is translated without them. A model trained on annotated sources (`annotation`) gets annotations
instead and writes a term in the form that fits, or not at all. Text that stays unchanged becomes a marker for a model
trained on markers (`documents.markup.markers`), and a required phrase for others. See `files` for glossary files.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headwise.config.settings import SearchSettings
from headwise.contract import Draft, Hypothesis
from headwise.documents.glossary.annotation import annotate_source, supports_annotations
from headwise.documents.glossary.files import GlossaryInput, load_glossary
from headwise.documents.glossary.terms import Glossary
from headwise.documents.markup.markers import restore_markers, supports_markers, with_markers
from headwise.documents.unit import Code, Parts, codes_of, join_parts, plain
from headwise.errors import UserError
from headwise.runtime.search.engine import execute
from headwise.runtime.search.request import TooLarge
from headwise.runtime.search.translator import TextTranslator, Translation, clean_text

MIN_BEAM_SIZE = 8  # smaller beams leave too few hypotheses for each number of phrase tokens


def with_glossary(
    translator: TextTranslator, glossary: GlossaryInput, languages: Sequence[str] = ("", "")
) -> TextTranslator:
    """A translator with a glossary; both are given as for `load_glossary`."""
    return GlossaryTranslator(translator, load_glossary(glossary, languages))


class GlossaryTranslator(TextTranslator):
    """A translator with a glossary, otherwise like `plain`."""

    def __init__(self, plain: TextTranslator, glossary: Glossary) -> None:
        vars(self).update(vars(plain))
        self._plain, self.glossary = plain, glossary
        self._annotates = supports_annotations(plain.tokenizer)

    def translate(
        self, texts: Sequence[str], prefix: str = "", draft: Draft | None = None, **overrides: Any
    ) -> list[Translation]:
        """Like `TextTranslator.translate`. Text that stays unchanged is translated as markers where these survive."""
        found: dict[int, Translation] = {}
        if supports_markers(self.tokenizer):
            kept = {n: parts for n, text in enumerate(texts) if (parts := self._with_codes(text))}
            marked = {n: text for n, parts in kept.items() if (text := with_markers(parts))}
            outputs = super().translate([self._annotated(text) for text in marked.values()], prefix, draft, **overrides)
            found = {n: whole for n, t in zip(marked, outputs, strict=True) if (whole := _restore_markers(kept[n], t))}
        others = [n for n in range(len(texts)) if n not in found]
        rest = super().translate([self._annotated(texts[n]) for n in others], prefix, draft, **overrides)
        found |= dict(zip(others, rest, strict=True))
        for n, text in enumerate(texts):
            self.glossary.note(text, found[n].text)
        return [found[n] for n in range(len(texts))]

    def search(
        self, sources: list[list[list[int]]], prefix: list[int], config: SearchSettings, draft: Draft | None = None
    ) -> list[list[Hypothesis]]:
        """Like `TextTranslator.search`; parts without room for the phrases are searched without them."""
        if config.sample or draft:
            raise UserError("a glossary needs beam search; remove sample and drafts")
        parts = [tokens for text in sources for tokens in text]
        prefixes = [prefix if i == 0 else [] for text in sources for i in range(len(text))]
        texts = [i for i, text in enumerate(sources) for _ in text]
        phrases = self.phrases(parts)
        found: list[list[Hypothesis]] = [[] for _ in parts]

        def fill(rows: list[int], config: SearchSettings, required: list[list[list[int]]] | None) -> None:
            request = self.request([parts[i] for i in rows], [prefixes[i] for i in rows], config, required)
            try:
                results = execute(self.engine(config), request)
            except TooLarge as error:
                raise TooLarge(texts[rows[error.index]], error.why) from None
            for i, ranked in zip(rows, results, strict=True):
                found[i] = ranked

        bound = [i for i, required in enumerate(phrases) if required]
        wide = replace(config, beam_size=max(config.beam_size, MIN_BEAM_SIZE))
        fill(bound, wide, [phrases[i] for i in bound])
        fill([i for i, ranked in enumerate(found) if not ranked], config, None)
        return found

    def phrases(self, parts: Sequence[Sequence[int]]) -> list[list[list[int]]]:
        """The required phrases of each part, in tokens; phrases with unknown tokens are omitted.

        For a model trained on annotated sources, only the text that stays unchanged.
        """
        texts = [self.tokenizer.source.decode(list(part)) for part in parts]
        matches = [[match.term for match in self.glossary.matches(text)] for text in texts]
        required = [dict.fromkeys(t.target for t in ts if t.is_kept or not self._annotates) for ts in matches]
        phrases = [[self.encode_prefix(target) for target in targets] for targets in required]
        return [[phrase for phrase in several if self.tokenizer.unk_id not in phrase] for several in phrases]

    def _annotated(self, text: str) -> str:
        """A text with its terms annotated, if the model supports it, except those that stay unchanged."""
        if not self._annotates:
            return text
        return annotate_source(text, [match for match in self.glossary.matches(text) if not match.term.is_kept])

    def _with_codes(self, text: str) -> Parts | None:
        """A text with codes for what stays unchanged; None if there is nothing."""
        text, at = clean_text(text), 0
        pieces: list[str | Code] = []
        for match in self.glossary.matches(text):
            if match.term.is_kept:
                pieces += [text[at : match.start], Code(match.term.target)]
                at = match.end
        return join_parts([*pieces, text[at:]]) if pieces else None


def _restore_markers(parts: Parts, translation: Translation) -> Translation | None:
    """A translation without markers; None if one is lost. Alternatives that lost one are dropped."""
    codes = codes_of(parts)
    whole = restore_markers(translation.text, codes)
    if whole is None:
        return None
    others = [one for other in translation.alternatives if (one := _restore_markers(parts, other))]
    return replace(translation, text=plain(whole), alternatives=tuple(others))
