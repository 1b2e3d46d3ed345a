"""Pretrained encoders (BERT, RoBERTa, ...), a class for each head. See `classifier` for classes of texts.

Nothing here needs torch; `torch_encoder` has what does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from headwise.errors import UserError, unknown
from headwise.evaluate.answers import AnswerReport, answer_report
from headwise.evaluate.entities import TagReport, tag_report
from headwise.evaluate.language import MaskedReport
from headwise.evaluate.retrieval import RetrievalReport
from headwise.importing import torch_needed
from headwise.models.encoding.answer import OVERLAP, READ, Answer, answers_in, passage_logits, read_passages
from headwise.models.encoding.embedding import EmbeddingModel
from headwise.models.encoding.encoder_network import encoder_embedder, encoder_network
from headwise.models.encoding.fill import Filling, fillings, mask_of
from headwise.models.encoding.label import class_names
from headwise.models.encoding.library_encoder import EncoderNetwork, softmax
from headwise.models.encoding.reading import TextReader, reader_of
from headwise.models.encoding.tag import Tagging, read_known_tags, read_words, tagging, word_logits, word_offsets
from headwise.models.encoding.vectors import TextEmbedder, retrieval_of
from headwise.models.introspection import ModelWithLoss, WalkableModel
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.checkpoint.trained import RUN
from headwise.runtime.tokenizers.pretrained_tokenizer import PretrainedTokenizer, encoder_special_ids
from headwise.runtime.tokenizers.vocabulary import bare, fingerprint
from headwise.text.files.contrastive_texts import read_contrastive
from headwise.text.files.documents import DocumentTokenizer
from headwise.text.files.lines import AUTO, READINGS
from headwise.text.files.questions import read_questions
from headwise.text.prepared.masking import Masking, word_edges

if TYPE_CHECKING:
    from headwise.pytorch.models.encoder import EncoderInTorch

AT_ONCE = 4096  # tokens


class EncoderModel(EmbeddingModel, WalkableModel):
    """An encoder alone (BERT, RoBERTa, ...): it embeds texts. Its head, "none" here, is for something else."""

    does = "reads texts"

    compute = "float32"
    """Precision of the weights in the compiled library; may be set to "int8"."""

    def torch(self) -> EncoderInTorch:
        with torch_needed():
            from headwise.pytorch.models.encoder import EncoderInTorch
        return EncoderInTorch(self)

    def evaluate(self, paths: Sequence[str]) -> RetrievalReport:
        """The accuracy of retrieving paired texts by their vectors, on files as `train` takes them."""
        lines = read_contrastive(paths)
        return retrieval_of(self.embedder, [line[0] for line in lines], [line[1] for line in lines])

    @cached_property
    def training(self) -> dict[str, Any]:
        """How the model was trained: entries and settings of training.json; {} if it was not trained here."""
        path = self.path / RUN
        return read_json(path) if path.is_file() else {}

    @cached_property
    def reader(self) -> TextReader:
        """Turns texts into what the network reads."""
        return reader_of(self)

    @property
    def texts(self) -> EncoderNetwork:
        """The network as it reads texts now: in the compiled library, or a torch module."""
        return encoder_network(self)

    @property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return replace(self._embedder, network=self.texts)

    @cached_property
    def _embedder(self) -> TextEmbedder:
        return encoder_embedder(self, self.texts)


class MaskedModel(EncoderModel, ModelWithLoss):
    """An encoder that predicts masked tokens (head "masked")."""

    usual_task = "mlm"

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """For each mask in the text the most probable tokens, best first; masks are filled independently.

        >>> model.fill_mask("A dog [MASK] in the park.")[0][0].text  # doctest: +SKIP
        'plays'
        """
        return fillings(lambda mask_id: self.texts, text, self.path, self.tokenizer, min(top, self.config.vocab_size))

    def evaluate(self, paths: Sequence[str], reading: str = AUTO) -> MaskedReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The quality of predictions of masked tokens, always the same ones, of text files.

        They are read and masked as in training where that is known; otherwise 15 % are masked. `reading` is "lines"
        (each is a sequence), "blocks" (running text of `max_len` tokens), or "auto"; see
        `headwise.text.files.lines.choose_reading`.
        """
        if reading not in READINGS:
            raise unknown("reading", reading, READINGS)
        return self.torch().evaluate_masked(paths, reading)

    @property
    def max_len(self) -> int:
        """The longest text that the network reads."""
        return self.config.encoder.longest or AT_ONCE

    @property
    def cutter(self) -> DocumentTokenizer:
        """Tokenizes documents, with the special token that ends a text between them."""
        encode, _, behind = bare(self.tokenizer)
        origin, size = fingerprint(self.path), self.config.vocab_size
        return DocumentTokenizer(lambda texts: [encode(text) for text in texts], [], behind, origin, size)

    @property
    def around(self) -> tuple[Sequence[int], Sequence[int]]:
        """The special tokens before and after a text."""
        return bare(self.tokenizer)[1:]

    def masking(self, share: float = 0.15, whole_words: bool = False) -> Masking:
        """Which tokens, or whole words, of a text are masked."""
        side, ids = (
            PretrainedTokenizer(self.tokenizer, self.tokenizer.encode, encoder_special_ids(0, 0, 0)),
            range(self.config.vocab_size),
        )
        known = [i for i in ids if side.piece(i) and not side.is_special(i)]
        joints = word_edges(side.pieces(ids)) if whole_words else None
        return Masking(self.mask_id, np.array(known, np.int64), share, joints)

    @property
    def mask_id(self) -> int:
        """The id of the mask token; `UserError` without one."""
        return mask_of(self.tokenizer, self.path)[1]


class Tagger(EncoderModel):
    """An encoder that tags words (head "token_class")."""

    does = "tags words"
    usual_task = "tag"

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The name of each class of the head."""
        return class_names(self.hf_config, self.config.n_classes)

    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[Tagging]:
        """The tag of each word, and the spans they mark, with their characters; a text may be a list of words.

        >>> model.tag(["Angela Merkel met Macron."])[0].spans[0].text  # doctest: +SKIP
        'Angela Merkel'
        """
        if isinstance(texts, str):
            raise UserError("tag takes a list of texts, or of lists of words; this is one string")
        split = [word_offsets(text) for text in texts]
        words = [[text[start:end] for start, end in positions] for text, positions in split]
        parts = read_words(self.reader, [one for one in words if one])
        found = iter(word_logits(self.texts, self.reader.typed, parts))
        best = [self._best(next(found)) if one else [] for one in words]
        return [tagging(*one, tags) for one, tags in zip(split, best, strict=True)]

    def _best(self, logits: Float32[np.ndarray, "words classes"]) -> list[tuple[str, float]]:
        """The most probable tag of each word, and its probability."""
        probabilities = softmax(logits)
        best = probabilities.argmax(1).tolist()
        return [(self.tags[i], p) for p, i in zip(probabilities.max(1).tolist(), best, strict=True)]

    def evaluate(self, paths: Sequence[str]) -> TagReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Accuracy, precision, recall and F1 of the tags of files as `train` takes them."""
        sentences = [one for path in paths for one in read_known_tags(path, self.tags)]
        found = self.tag([one.words for one in sentences])
        return tag_report([one.tags for one in sentences], [one.tags for one in found])


class QuestionAnswerer(EncoderModel):
    """An encoder that finds answers in texts (head "span")."""

    does = "answers questions"
    usual_task = "answer"

    def answer(self, questions: Sequence[tuple[str, str]], unanswerable: bool = False) -> list[Answer]:
        """The answer to each question, a span of the text that comes with it.

        >>> model.answer([("Who wrote Faust?", "Faust is a play by Goethe.")])[0].text  # doctest: +SKIP
        'Goethe'

        Args:
            unanswerable: the answer is "" where the model finds that more probable.
        """
        if any(isinstance(one, str) or len(one) != 2 for one in questions):
            raise UserError("answer takes a list of pairs, (question, text); one of these is none")
        passages = read_passages(self.reader, questions, *self._passage_size)
        logits = passage_logits(self.texts, self.reader.typed, passages)
        return answers_in(questions, passages, logits, unanswerable)

    @cached_property
    def _passage_size(self) -> tuple[int, int]:
        """Tokens of a passage and of the overlap of two, as in training where that is known."""
        data = self.training.get("data", {})
        longest, overlap = data.get("max_length") or READ, data.get("overlap", OVERLAP)
        return min(longest, self.reader.longest or longest), overlap

    def evaluate(self, paths: Sequence[str]) -> AnswerReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Exact match and F1; where some questions have no answer, the model may give none."""
        examples = [one for path in paths for one in read_questions(path)]
        unanswerable = not all(one.answers for one in examples)
        found = self.answer([(one.question, one.context) for one in examples], unanswerable)
        gold = [[answer.text for answer in one.answers or ()] for one in examples]
        return answer_report([one.text for one in found], gold)
