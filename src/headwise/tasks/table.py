"""The jobs of every task, by its name in `headwise.config.tasks.TASKS`."""

from dataclasses import dataclass

from headwise.tasks import (
    answering,
    captioning,
    classification,
    denoising,
    embedding,
    forecasting,
    language_modelling,
    masked_modelling,
    permutation_modelling,
    pictures,
    replaced_modelling,
    tagging,
    transcription,
    translation,
)
from headwise.tasks.job import MakeJob
from headwise.tasks.pretrained import FineTuning


@dataclass(frozen=True)
class TaskJobs:
    """How a task trains from scratch and from a pretrained model."""

    from_scratch: MakeJob | None  # None = only from a pretrained model
    fine_tuning: FineTuning | None = None  # None = only from scratch


JOBS = {
    "translate": TaskJobs(translation.translation_job, translation.FINE_TUNING),
    "denoise": TaskJobs(denoising.denoising_job, denoising.FINE_TUNING),
    "classify": TaskJobs(classification.classification_job, classification.FINE_TUNING),
    "tag": TaskJobs(tagging.tagging_job, tagging.FINE_TUNING),
    "answer": TaskJobs(answering.answering_job, answering.FINE_TUNING),
    "embed": TaskJobs(embedding.embedding_job, embedding.FINE_TUNING),
    "forecast": TaskJobs(forecasting.forecast_job),
    "lm": TaskJobs(language_modelling.language_job, language_modelling.FINE_TUNING),
    "mlm": TaskJobs(masked_modelling.masked_job, masked_modelling.FINE_TUNING),
    "rtd": TaskJobs(replaced_modelling.replaced_job),
    "plm": TaskJobs(permutation_modelling.permutation_job, permutation_modelling.FINE_TUNING),
    "label": TaskJobs(pictures.picture_job, pictures.FINE_TUNING),
    "transcribe": TaskJobs(None, transcription.FINE_TUNING),
    "caption": TaskJobs(captioning.captioning_job, captioning.FINE_TUNING),
}


def fine_tuning_of(task: str) -> FineTuning:
    """The fine-tuning of a task that has it."""
    found = JOBS[task].fine_tuning
    assert found
    return found
