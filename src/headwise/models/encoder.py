"""Pretrained encoders (BERT, RoBERTa, ...). Not here: classes of texts (`classifier`).

Nothing here needs torch; `torch_encoder` has what does.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.layout import read_json
from headwise.checkpoint.trained import RUN
from headwise.checkpoint.vocabulary import bare, fingerprint
from headwise.data.contrastive_texts import read_contrastive
from headwise.data.documents import DocumentTokenizer
from headwise.data.lines import AUTO, READINGS
from headwise.data.masking import Masking, word_edges
from headwise.data.questions import read_questions
from headwise.errors import UserError, unknown
from headwise.evaluate.answers import AnswerReport, answer_report
from headwise.evaluate.entities import TagReport, tag_report
from headwise.evaluate.language import MaskedReport
from headwise.evaluate.retrieval import RetrievalReport
from headwise.generation.answer import OVERLAP, READ, Answer, answers_in, passage_logits, read_passages
from headwise.generation.chat import special_token_text, tokenizer_settings
from headwise.generation.encoder_network import EncoderNetwork, softmax
from headwise.generation.fill import Filling, fillings, mask_of
from headwise.generation.label import class_names
from headwise.generation.pretrained_tokenizer import PretrainedTokenizer, encoder_special_ids
from headwise.generation.reading import TextReader, reader_of
from headwise.generation.tag import Tagging, read_known_tags, read_words, tagging, word_logits, word_offsets
from headwise.generation.vectors import TextEmbedder, embed_texts, retrieval_of
from headwise.models.encoder_network import encoder_embedder, encoder_network
from headwise.models.model import Model, by_torch, only_with

AT_ONCE = 4096  # tokens
USUAL_TASKS = {"masked": "mlm", "token_class": "tag", "span": "answer"}
DOES = {"token_class": "tags words", "span": "answers questions"}


class EncoderModel(Model):
    """An encoder alone (BERT, RoBERTa, ...): it embeds texts, and does what its head is for.

    Heads: "masked" for masked tokens, "token_class" for tags of words, "span" for answers, "none".
    """

    attend, trace, look_inside, walk, walks, mask_heads, prune = (
        by_torch(f"introspection:{name}")
        for name in (
            *("attend_input", "trace_input", "inspect_input", "walk_input", "walks_of_input"),
            *("mask_model_heads", "prune_model"),
        )
    )
    head_importance = only_with("masked")(by_torch("introspection:input_head_importance"))
    observed = by_torch("inputs:encoded_text")
    """A text as the inspector reads it."""
    example = by_torch("torch_encoder:masked_example")
    """A text and the loss of its tokens, some of which are masked."""
    embed = embed_texts

    compute = "float32"
    """Precision of the weights in the compiled library; may be set to "int8"."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        self.does = DOES.get(self.head, "reads texts")
        self.usual_task = USUAL_TASKS.get(self.head, "translate")

    def evaluate(
        self, paths: Sequence[str], reading: str = AUTO
    ) -> MaskedReport | TagReport | AnswerReport | RetrievalReport:
        """How good the head is on files as `train` takes them; without one, how often the vector of a text finds the
        text that belongs to it.

        `reading` is for masked tokens: "lines" (each is a sequence), "blocks" (running text), or "auto".
        """
        if reading != AUTO and self.head != "masked":
            raise UserError(f"reading = {reading}: is for masked language models, and this model {self.does}")
        if reading not in READINGS:
            raise unknown("reading", reading, READINGS)
        if self.head == "masked":
            return self.needing_torch("headwise.models.torch_encoder:evaluate_masked")(self, paths, reading)
        ways = {"token_class": self._evaluate_tags, "span": self._evaluate_answers}
        return ways.get(self.head, self._evaluate_vectors)(paths)

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

    def _evaluate_vectors(self, paths: Sequence[str]) -> RetrievalReport:
        lines = read_contrastive(paths)
        return retrieval_of(self.embedder, [line[0] for line in lines], [line[1] for line in lines])

    # --- Masked tokens ---

    @only_with("masked")
    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        return fillings(lambda mask_id: self.texts, text, self.path, self.tokenizer, min(top, self.config.vocab_size))

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

    @cached_property
    def training(self) -> dict[str, Any]:
        """How the model was trained: entries and settings of training.json; {} if it was not trained here."""
        path = self.path / RUN
        return read_json(path) if path.is_file() else {}

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
        return mask_of(self.tokenizer, special_token_text(tokenizer_settings(self.path), "mask_token"))[1]

    # --- Tags of words ---

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The name of each class of the head."""
        return class_names(self.hf_config, self.config.n_classes)

    @only_with("token_class")
    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[Tagging]:
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

    def _evaluate_tags(self, paths: Sequence[str]) -> TagReport:
        sentences = [one for path in paths for one in read_known_tags(path, self.tags)]
        found = self.tag([one.words for one in sentences])
        return tag_report([one.tags for one in sentences], [one.tags for one in found])

    # --- Answers ---

    @only_with("span")
    def answer(self, questions: Sequence[tuple[str, str]], unanswerable: bool = False) -> list[Answer]:
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

    def _evaluate_answers(self, paths: Sequence[str]) -> AnswerReport:
        """Exact match and F1; where some questions have no answer, the model may give none."""
        examples = [one for path in paths for one in read_questions(path)]
        unanswerable = not all(one.answers for one in examples)
        found = self.answer([(one.question, one.context) for one in examples], unanswerable)
        gold = [[answer.text for answer in one.answers or ()] for one in examples]
        return answer_report([one.text for one in found], gold)
