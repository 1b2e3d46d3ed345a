"""Translation Memory eXchange (.tmx): https://www.gala-global.org/tmx-14b.

A `tu` is a unit, with a `tuv` of the source language and perhaps one of the target language. A file may have more than
two languages; then the two must be given. Translations get the attribute `creationid="MT!"`, by which translation tools
recognise machine translation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwise.documents.markup.markup import Element, Source, to_xml, with_attributes
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState
from headwise.errors import UserError
from headwise.text.language_codes import same_language

WHOLE = ("bpt", "ept", "it", "ph", "ut")  # contain codes of the original document


@dataclass(frozen=True)
class Variants:
    """The elements of a unit."""

    source: Element
    target: Element | None
    last: Element  # its last `tuv`


class TranslationMemory:
    """A TMX document."""

    def __init__(self, source: Source, languages: tuple[str, str], codes: Sequence[str]) -> None:
        """`codes`: the languages of the file."""
        self._source, self.languages = source, languages
        self.source_languages, self.target_languages = (
            [Declared(wanted, source.root.line)] if any(same_language(code, wanted) for code in codes) else []
            for wanted in languages
        )
        self._variants: list[Variants] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        for tu in source.root.every("tu"):
            self._add(tu)

    def _add(self, tu: Element) -> None:
        variants = [child for child in tu.children if child.name == "tuv"]
        pair = [
            next((v for v in variants if same_language(variant_language(v), code)), None) for code in self.languages
        ]
        if pair[0] is None:
            self.skipped.append(Skipped("unit without the source language", tu.line))
            return
        source, target = self._text(pair[0]), self._text(pair[1]) if pair[1] else ()
        state = UnitState.KEPT if not source else UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
        self._variants.append(Variants(pair[0], pair[1], variants[-1]))
        self.units.append(Unit(source, target, state, tu.line, kept="" if source else "empty unit"))

    def _text(self, tuv: Element) -> Parts:
        segment = tuv.child("seg")
        if segment is None:
            return ()
        parts = self._source.parts(segment, lambda e: e.name not in WHOLE and e.inner_end > e.inner)
        return strip_parts(parts)

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        return self._source.edited(edit for number, parts in targets.items() for edit in self._edits(number, parts))

    def _edits(self, number: int, parts: Parts) -> Iterator[tuple[int, int, str]]:
        variants, content = self._variants[number], f"<seg>{to_xml(parts)}</seg>"
        if variants.target is None:
            indented = self._source.indentation(variants.last)
            tuv = f'<tuv xml:lang="{self.languages[1]}" creationid="MT!">{content}</tuv>'
            yield variants.last.end, variants.last.end, indented + tuv
            return
        tag = self._source.text(variants.target.start, variants.target.inner)
        yield variants.target.start, variants.target.inner, with_attributes(tag.replace("/>", ">"), creationid="MT!")
        segment = variants.target.child("seg")
        if segment is not None:
            yield segment.start, segment.end, content
        else:
            at = variants.target.inner_end
            closing = "</tuv>" if variants.target.inner == variants.target.end else ""
            yield at, at, content + closing


def strip_parts(parts: Parts) -> Parts:
    """Parts without outer blanks; empty if there is no text."""
    if not any(part.strip() for part in parts if isinstance(part, str)):
        return ()
    found = list(parts)
    if isinstance(found[0], str):
        found[0] = found[0].lstrip()
    if isinstance(found[-1], str):
        found[-1] = found[-1].rstrip()
    return tuple(part for part in found if part != "")


def variant_language(tuv: Element) -> str:
    """The language code; older files have it without a namespace."""
    return tuv.attributes.get("xml:lang") or tuv.attributes.get("lang", "")


def read_tmx(path: str, data: bytes, languages: Sequence[str]) -> TranslationMemory:
    """Read a translation memory; `languages` default to the source language of the header and the only other one."""
    source = Source(path, data)
    if source.root.name != "tmx":
        raise UserError(f"{path}: line {source.root.line}: not a TMX file: the root element is <{source.root.name}>")
    codes = list(dict.fromkeys(variant_language(tuv) for tuv in source.root.every("tuv")))
    header = source.root.child("header")
    available = ", ".join(codes) or "none"
    if languages[0] and not any(same_language(code, languages[0]) for code in codes):
        raise UserError(f"{path}: no text in '{languages[0]}'; its languages are: {available}")
    src = languages[0] or (header.attributes.get("srclang", "") if header else "")
    src = src if any(same_language(code, src) for code in codes) else ""
    others = [code for code in codes if not src or not same_language(code, src)]
    tgt = languages[1] or (others[0] if src and len(others) == 1 else "")
    if not (src and tgt):
        raise UserError(f"{path}: which languages? It has {available}; add --languages FROM-TO")
    return TranslationMemory(source, (src, tgt), codes)
