"""Extractive question answering."""

from collections.abc import Sequence
from functools import cached_property

from sightline.checkpoint.layout import read_json
from sightline.checkpoint.trained import RUN
from sightline.data.questions import read_questions
from sightline.errors import UserError
from sightline.evaluate.answers import AnswerReport, answer_report
from sightline.generation.answer import OVERLAP, READ, Answer, answers_in, passage_logits, read_passages
from sightline.models.reading import ReadingModel


class AnsweringModel(ReadingModel):
    """An encoder alone with a head for the ends of answers: it finds them in a text."""

    does = "answers questions"
    usual_task = "answer"

    @cached_property
    def reads_at_once(self) -> tuple[int, int]:
        """Tokens of a passage, and those that neighbours share: as the model was trained, where that is known."""
        path = self.path / RUN
        data = read_json(path).get("data", {}) if path.is_file() else {}
        longest, overlap = data.get("max_length") or READ, data.get("overlap", OVERLAP)
        return min(longest, self.reader.longest or longest), overlap

    def answer(self, questions: Sequence[tuple[str, str]], unanswerable: bool = False) -> list[Answer]:
        """The answer to each question, given with the text that holds it; its characters are those of the text.

        >>> model.answer([("Who wrote Faust?", "Faust is a play by Goethe.")])[0].text  # doctest: +SKIP
        'Goethe'

        Args:
            unanswerable: the text may hold none; where more speaks for that, the answer is "".
        """
        if any(isinstance(one, str) or len(one) != 2 for one in questions):
            raise UserError("answer takes a list of pairs, (question, text); one of these is none")
        passages = read_passages(self.reader, questions, *self.reads_at_once)
        logits = passage_logits(self.network, self.reader, passages, self.device)
        return answers_in(questions, passages, logits, unanswerable)

    def evaluate(self, paths: Sequence[str]) -> AnswerReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Exact match and F1 on files of questions; where some of them have no answer, the model may give none."""
        asked = [one for path in paths for one in read_questions(path)]
        found = self.answer([(one.question, one.context) for one in asked], not all(one.answers for one in asked))
        return answer_report([one.text for one in found], [[a.text for a in one.answers or ()] for one in asked])
