"""Text to subword ids and back, with the `tokenizers` library.

No character is ever unknown, and every text survives the round trip exactly:

1. The text is normalised as configured, and one space is added in front, so that a word at the start of a sentence is
   the same token as in the middle. Decoding removes exactly one space.
2. The text is split into words (with the space before them), single digits, runs of one punctuation character and
   single spaces, so that `dog` and `dog.` share a token and numbers are spelled digit by digit.
3. Each part is written in the 256-letter byte alphabet of GPT-2, which is always in the vocabulary, and segmented by
   byte-pair encoding (arXiv:1508.07909) or a unigram model (arXiv:1804.10959).

Text never becomes a special token: `</s>` in a sentence stays four characters. Only the tokens that the caller adds
are recognised in text. Start and end tokens are added by `batch.py`.
"""

import json
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from random import Random

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from headwise.config.data import TextData
from headwise.contract import SpecialIds
from headwise.device import usable_cores
from headwise.errors import UserError, unknown
from headwise.text.files.sources import unreadable
from headwise.text.files.words import BYTES, WordTable, split_at
from headwise.text.tokens.bpe_dropout import Merges

PAD, BOS, EOS, UNK = SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
OTHER_NAMES = {PAD: ["[PAD]"], BOS: ["<bos>", "[CLS]", "<cls>"], EOS: ["<eos>", "[SEP]", "<sep>"], UNK: ["[UNK]"]}

# A word with the space before it (the two joiners belong to Persian and Indic words), one digit, a run of one
# punctuation character or symbol, one whitespace character. Every character matches one of the four.
WORDS = r" ?\p{L}[\p{L}\p{M}\u200c\u200d]*| ?\p{N}| ?([^\s\p{L}\p{N}])\1*|\s"

TABLE_SPEED = 3  # number of cores with which the library is as fast as the word table, which uses one
FEW = 16  # texts; for fewer, building the word table does not pay
NORMALIZERS = {"none": (), "nfc": (normalizers.NFC,), "nfkc": (normalizers.NFKC,)}


class Tokenizer:
    """Subword tokenizer of models trained here: `decode(encode(x)) == x` for every text x, after normalisation."""

    _source: "Tokenizer | None" = None
    prefix = ""  # put in front of every text that is encoded: a language token, an instruction

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the library that has padding, start, end and unknown tokens under usual names.

        Raises:
            UserError: a special token is missing.
        """
        backend.encode_special_tokens = True  # text that looks like a special token stays text
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = (special_id(backend, name) for name in SPECIALS)
        added = backend.get_added_tokens_decoder()
        self.declared = {index: token.content for index, token in added.items() if not token.special}

    @classmethod
    def train(cls, texts: Iterable[str], config: TextData, special: Sequence[str] = ()) -> "Tokenizer":
        """Train a vocabulary of `config.vocab_size` tokens on texts of both languages together.

        BPE gives the same tokens every time. The library's unigram trainer sums in no fixed order, so its tokens may
        differ between runs.

        Args:
            texts: read once, as a stream.
            config: uses `subword`, `vocab_size`, `normalization` and `lowercase`.
            special: added tokens, recognised wherever a text contains them, such as `<2de>`.
        """
        backend = tokenizers.Tokenizer(subword_model(config.subword))
        backend.normalizer = normalizers.Sequence([*normalization(config), normalizers.Prepend(" ")])
        backend.pre_tokenizer = pre_tokenizer()
        backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        plain = (part for text in texts for part in split_at(special, text) if part not in special)
        backend.train_from_iterator(plain, subword_trainer(config, len(special)))
        backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in special])
        return cls(backend)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a `tokenizer.json` that has padding, start, end and unknown tokens.

        Raises:
            UserError: the file is missing or is not such a tokenizer.
        """
        try:
            return cls(tokenizers.Tokenizer.from_str(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise unreadable(str(path), error) from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except Exception as error:  # the library raises plain Exception
            raise UserError(f"{path}: is not a tokenizer.json of the tokenizers library ({error})") from error

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json` that the `tokenizers` library reads."""
        Path(path).write_text(self.backend.to_str(pretty=True), encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, the same before and after saving.

        Scores of unigram pieces are rounded, because the library reads its own numbers back inexactly.
        """
        content = json.loads(self.backend.to_str(), parse_float=lambda number: f"{float(number):.9g}")
        canonical = json.dumps(content, sort_keys=True)
        return sha256(canonical.encode()).hexdigest()

    @cached_property
    def special(self) -> SpecialIds:
        """The ids that mean something to the search."""
        return SpecialIds(self.pad_id, self.bos_id, self.eos_id, self.unk_id)

    @property
    def source(self) -> "Tokenizer":
        """The tokenizer of source texts: this one, unless `with_source_prefix` has set another."""
        return self._source or self

    def with_source_prefix(self, prefix: str) -> "Tokenizer":
        """A tokenizer of the same vocabulary that puts `prefix` in front of every source text."""
        tokenizer, source = copy(self), copy(self)
        tokenizer._source, source.prefix = source, prefix
        return tokenizer

    @cached_property
    def in_bytes(self) -> bool:
        """Whether pieces are written in the byte alphabet."""
        return self.backend.token_to_id("Ġ") is not None

    def is_special(self, token: int) -> bool:
        """Whether an id is one of the four special tokens."""
        return token in (self.pad_id, self.bos_id, self.eos_id, self.unk_id)

    def piece(self, token: int) -> str:
        """The subword string of an id as in the vocabulary; empty if there is none."""
        return self.backend.id_to_token(token) or ""

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """`encode`, and the index of each token's first character; tokens of the prefix get the text's length."""
        encoding = self.backend.encode(self.prefix + text, add_special_tokens=False)
        starts = [start - len(self.prefix) for start, _ in encoding.offsets]
        return encoding.ids, [start if start >= 0 else len(text) for start in starts]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start or end tokens."""
        text = self.prefix + text
        known = self.from_table(text)
        return known if known is not None else self.backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts on all cores (the environment variable RAYON_NUM_THREADS sets fewer)."""
        on_all_cores = len(texts) > 1000 and usable_cores() > TABLE_SPEED
        texts = [self.prefix + text for text in texts] if self.prefix else texts
        by_table = len(texts) >= FEW and not on_all_cores
        found = [self.from_table(text) if by_table else None for text in texts]
        rest = [text for text, tokens in zip(texts, found, strict=True) if tokens is None]
        encodings = iter(self.backend.encode_batch_fast(rest, add_special_tokens=False))
        return [next(encodings).ids if tokens is None else tokens for tokens in found]

    @cached_property
    def table(self) -> WordTable | None:
        """The ids of words, if Python can split texts as the library does; otherwise None."""
        return word_table(self.backend)

    def from_table(self, text: str) -> list[int] | None:
        """The ids of a text without added tokens; None for any other."""
        if self.table is None or not text or any(token in text for token in self.declared.values()):
            return None
        return self.table.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids, without special tokens; added tokens are kept, invalid UTF-8 becomes U+FFFD."""
        parts: list[str] = []
        stretch: list[int] = []
        for token in map(int, tokens):
            if token in self.declared:  # each stretch between added tokens has its own space in front
                parts += [self.backend.decode(stretch), self.declared[token]]
                stretch = []
            else:
                stretch.append(token)
        return "".join([*parts, self.backend.decode(stretch)])

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One readable string per id: spaces as `▁`, incomplete UTF-8 as `<0xE3>`."""
        return [readable(self.backend.id_to_token(int(token)) or f"<{token}>") for token in tokens]

    def encode_with_dropout(self, text: str, probability: float, seed: int | Random) -> list[int]:
        """A random segmentation: `encode` that skips each merge with a probability at each step.

        BPE-dropout (arXiv:1910.13267, Algorithm 1). The same seed gives the same ids; probability 0 gives `encode`.

        Raises:
            UserError: the tokenizer is not byte-level BPE.
        """
        return self.encode(text) if probability <= 0 else self.merges.segment(text, probability, seed)

    @cached_property
    def merges(self) -> Merges:
        """The merge table for BPE-dropout, read once."""
        return Merges(self.backend, self.declared, self.table.letters if self.table else None)


def word_table(backend: tokenizers.Tokenizer) -> WordTable | None:
    """A table for a tokenizer trained by `train` without lowercasing; None for any other."""
    content = json.loads(backend.to_str())
    ours = tokenizers.Tokenizer(models.BPE())
    ours.pre_tokenizer = pre_tokenizer()
    same = content["pre_tokenizer"] == json.loads(ours.to_str())["pre_tokenizer"]
    steps = [step["type"] for step in (content["normalizer"] or {}).get("normalizers", [])]
    if not (same and steps in (["Prepend"], ["NFC", "Prepend"])):
        return None
    return WordTable(backend.model, {byte: letter for letter, byte in BYTES.items()})


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Words, each in the byte alphabet."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )


def special_id(backend: tokenizers.Tokenizer, name: str) -> int:
    """The id of a special token under one of its usual names."""
    for candidate in [name, *OTHER_NAMES[name]]:
        index = backend.token_to_id(candidate)
        if index is not None:
            return index
    raise UserError(
        f"the tokenizer has no {name} token (or {', '.join(OTHER_NAMES[name])}); add it, or train a tokenizer"
    )


def normalization(config: TextData) -> list[normalizers.Normalizer]:
    """The configured normalisation; `decode` returns the normalised text."""
    if config.normalization not in NORMALIZERS:
        raise unknown("data.normalization", config.normalization, NORMALIZERS)
    lowercase = (normalizers.Lowercase,) if config.lowercase else ()
    return [make() for make in (*NORMALIZERS[config.normalization], *lowercase)]


def subword_model(subword: str) -> models.Model:
    """An untrained model."""
    if subword not in ("bpe", "unigram"):
        raise unknown("data.subword", subword, ["bpe", "unigram"])
    return models.BPE() if subword == "bpe" else models.Unigram()


def subword_trainer(config: TextData, n_declared: int, special: Sequence[str] = SPECIALS) -> trainers.Trainer:
    """A trainer whose vocabulary has the configured size, including the tokens added later."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    smallest = len(special) + len(alphabet) + n_declared
    if config.vocab_size < smallest:
        raise UserError(f"data.vocab_size is {config.vocab_size}; bytes and special tokens alone need {smallest}")
    common = {
        "vocab_size": config.vocab_size - n_declared,
        "special_tokens": list(special),
        "initial_alphabet": alphabet,
        "show_progress": False,
    }
    if config.subword == "bpe":
        return trainers.BpeTrainer(min_frequency=2, **common)
    return trainers.UnigramTrainer(unk_token=special[SPECIALS.index(UNK)], **common)


def readable(piece: str) -> str:
    """A subword string written in byte letters, in readable form.

    >>> readable("Ġdog"), readable("æĹ¥"), readable("æĹ"), readable("</s>")
    ('▁dog', '日', '<0xE6><0x97>', '</s>')
    """
    if any(letter not in BYTES for letter in piece) or piece in SPECIALS:
        return piece
    raw = bytes(BYTES[letter] for letter in piece)
    return "".join(map(readable_character, raw.decode("utf-8", errors="surrogateescape")))


def readable_character(character: str) -> str:
    """A printable form of a character: a space is `▁`, invisible and incomplete characters are bytes."""
    if character == " ":
        return "▁"
    if character.isprintable():
        return character
    return "".join(f"<0x{byte:02X}>" for byte in character.encode("utf-8", errors="surrogateescape"))
