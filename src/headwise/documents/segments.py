"""The segment pipeline: sentences are translated with their codes preserved, in texts, web pages and files.

A sentence without words stays as it is, and one that a translation memory has is taken from it. Any other is translated
by up to three methods, until one preserves exactly its codes: with markers, if the model was trained on them; as it is;
and without codes, which are then placed by word alignment. See `fill` for units of documents and `sentences` for
splitting of texts.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from headwise.documents.markup.inline_tree import bare_text, same_tree
from headwise.documents.markup.markers import restore_copies, restore_markers, with_markers
from headwise.documents.markup.placed_codes import place_codes
from headwise.documents.markup.placeholders import adds_codes, in_order, same_placeholders
from headwise.documents.segment_memory import MemoryMatch
from headwise.documents.sentences import MAX_SENTENCE
from headwise.documents.unit import CLOSES, OPENS, Parts, codes_of, plain, strings_only
from headwise.runtime.search.translator import Translation
from headwise.text.files.links import Links

GUESSED = "position of a format or placeholder was guessed"
MARKUP_LOST = "markup lost"
CODES_CHANGED = "left untranslated: a placeholder was lost or added, or changed its place"


@dataclass(frozen=True)
class SentenceRequest:
    """Sentences to translate; `aligned` if word alignments are needed.

    With `is_lookup`, keys of segments to look up in a translation memory instead; an unknown one has no text.
    """

    texts: Sequence[str]
    aligned: bool = False
    is_lookup: bool = False
    later: int = 0  # sentences that only a later method can translate


@dataclass(frozen=True)
class SentenceTranslation(Translation):
    """The translation of a sentence, of a document or a request; its tokens are counted and not kept."""

    source: str = ""
    n_tokens: tuple[int, int] = (0, 0)  # of source and target
    links: Links | None = None  # word alignment, if requested and available
    memory: MemoryMatch | None = None  # similar to it, if requested
    warning: str = ""  # about its codes


@dataclass(frozen=True)
class TranslatedSentence:
    """A translated sentence with its codes."""

    parts: Parts  # empty if no method preserved its codes
    log_prob: float = 0.0
    n_tokens: int = 0  # with the end token; 0 if no model was asked
    warning: str = ""
    asked: tuple[str, bool] | None = None  # the requested text, and whether its alignment was requested


SegmentSteps = Generator[SentenceRequest, list[SentenceTranslation], list[TranslatedSentence]]
Lookup = Callable[[Parts], Parts | None]  # the translation of a sentence in a memory


def has_words(parts: Parts) -> bool:
    """Whether there is anything to translate: letters outside codes.

    >>> has_words(("5 + 7 = 12 ",)), has_words(("5 km",))
    (False, True)
    """
    return any(character.isalpha() for character in strings_only(parts))


def translate_segments(
    sentences: Sequence[tuple[Parts, str]], markers: bool, lookup: Lookup = lambda parts: None
) -> SegmentSteps:
    """Translate sentences, as a generator: it yields sentences to translate, and the caller sends the translations.

    Args:
        sentences: each with its markup language (`Unit.markup`).
        markers: whether the model was trained on markers (`markers.supports_markers`).
        lookup: finds translations that need no model.
    """
    done: dict[int, TranslatedSentence] = {}
    for n, (parts, _) in enumerate(sentences):
        known = parts if not has_words(parts) else lookup(parts)
        if known and same_tree(parts, known):
            done[n] = TranslatedSentence(known)
    for to_text, to_sentence, aligned in (
        (with_markers if markers else _no_markers, _from_markers, False),
        (_as_written, _from_written, False),
        (_bare, _beside_words, True),
    ):
        rest = {n: to_text(parts) for n, (parts, _) in enumerate(sentences) if n not in done}
        texts = {n: text for n, text in rest.items() if text is not None}
        if texts:
            outputs = yield SentenceRequest(list(texts.values()), aligned, later=len(rest) - len(texts))
            for (n, text), output in zip(texts.items(), outputs, strict=True):
                source, markup = sentences[n]
                found, warning = to_sentence(source, output)
                of_text = aligned and adds_codes((text,), (output.text,), markup)  # which placed codes may divide
                if found is not None and not of_text and _keeps_codes(source, found, markup, not aligned):
                    tokens = output.n_tokens[1] + 1
                    done[n] = TranslatedSentence(found, output.log_prob, tokens, warning, (text, aligned))
    return [done.get(n) or TranslatedSentence((), warning=CODES_CHANGED) for n in range(len(sentences))]


def _keeps_codes(source: Parts, target: Parts, markup: str, with_words: bool) -> bool:
    """Whether programs read the same codes from both texts; `with_words`: and whether spans have words in both."""
    return (
        (not codes_of(target) or same_tree(source, target, with_words))
        and in_order(source, target)
        and not adds_codes(source, target, markup)
        and same_placeholders(source, target, markup)
    )


def _no_markers(parts: Parts) -> None:
    """For a model without markers in its vocabulary."""


def _from_markers(parts: Parts, output: SentenceTranslation) -> tuple[Parts | None, str]:
    return restore_markers(output.text, codes_of(parts)), ""


def _as_written(parts: Parts) -> str | None:
    """The text as it is, if its codes are text: many models copy unknown words.

    None with codes that make it long, and with spans whose ends look the same, so that nobody knows what is inside.
    """
    text, codes = plain(parts), codes_of(parts)
    is_short = len(text) <= MAX_SENTENCE or len(parts) == 1
    ends = [{code.text for code in codes if code.kind == kind} for kind in (OPENS, CLOSES)]
    return text if is_short and not any(code.inline for code in codes) and not ends[0] & ends[1] else None


def _from_written(parts: Parts, output: SentenceTranslation) -> tuple[Parts | None, str]:
    codes = codes_of(parts)
    return (restore_copies(output.text, codes) if codes else (output.text,)), ""


def _bare(parts: Parts) -> str | None:
    return bare_text(parts) if codes_of(parts) else None


def _beside_words(parts: Parts, output: SentenceTranslation) -> tuple[Parts | None, str]:
    """The text translated without codes, and with each code placed by word alignment."""
    placed = place_codes(parts, output.text, output.links or ())
    if output.links is not None or not placed.is_guess:
        return placed.parts, MARKUP_LOST if placed.is_emptied else GUESSED if placed.is_guess else ""
    return ((output.text,), MARKUP_LOST) if all(code.inline for code in codes_of(parts)) else (None, "")
