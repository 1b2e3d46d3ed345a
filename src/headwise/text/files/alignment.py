"""Word alignments of a prepared corpus, and the word that each token belongs to."""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from headwise.text.files.columns import Column
from headwise.text.files.corpus import Corpus, read_pairs
from headwise.text.files.links import check_links, read_links
from headwise.text.prepared.prepared import PreparedCorpus
from headwise.text.tokens.pair_tokenizer import PairTokenizer

WORD = re.compile(r"\S+")
NO_WORD = -1


def corpus_links(path: str, corpora: Sequence[Corpus], prepared: PreparedCorpus) -> Column:
    """The links of every pair that `prepare` kept, as alternating word numbers: i, j, i, j...

    `path` has a line for every pair of the files, including dropped ones. Kept pairs are recognised by their texts, in
    order, because dropping depends on the texts alone.

    Raises:
        UserError: as `read_links` and `check_links`.
    """
    pairs = list(read_pairs(corpora))
    links = read_links(path)
    check_links(path, links, *zip(*pairs, strict=True))
    values, ends = [], [0]
    for pair, pair_links in zip(pairs, links, strict=True):
        if len(ends) <= len(prepared) and pair == prepared.text(len(ends) - 1):
            values += [number for link in sorted(pair_links) for number in link]
            ends.append(len(values))
    assert len(ends) == len(prepared) + 1, "the prepared corpus is a subsequence of the files"
    return Column(np.array(values, np.int32), np.array(ends, np.int64))


def words_of_tokens(tokenizer: PairTokenizer, text: str) -> tuple[list[int], Int64[np.ndarray, " tokens"]]:
    """The token ids of a text, and the word number of each; `NO_WORD` for spaces at the end.

    A token that is only a space belongs to the word after it.
    """
    ids, starts = tokenizer.encode_with_starts(text)
    ends = np.array([match.end() for match in WORD.finditer(text)], dtype=np.int64)
    words = np.searchsorted(ends, np.array(starts, dtype=np.int64), side="right")
    return ids, np.where(words < len(ends), words, NO_WORD)
