"""The jobs of every task, by its name in `headwise.config.tasks.TASKS`."""

from headwise.importing import Table
from headwise.tasks.pretrained import FineTuning, TaskJobs

JOBS: Table[TaskJobs] = Table(
    {
        "translate": "headwise.tasks.translation:JOBS",
        "denoise": "headwise.tasks.denoising:JOBS",
        "classify": "headwise.tasks.classification:JOBS",
        "tag": "headwise.tasks.tagging:JOBS",
        "answer": "headwise.tasks.answering:JOBS",
        "embed": "headwise.tasks.embedding:JOBS",
        "forecast": "headwise.tasks.forecasting:JOBS",
        "lm": "headwise.tasks.language_modelling:JOBS",
        "mlm": "headwise.tasks.masked_modelling:JOBS",
        "rtd": "headwise.tasks.replaced_modelling:JOBS",
        "plm": "headwise.tasks.permutation_modelling:JOBS",
        "label": "headwise.tasks.pictures:JOBS",
        "transcribe": "headwise.tasks.transcription:JOBS",
        "caption": "headwise.tasks.captioning:JOBS",
    }
)


def fine_tuning_of(task: str) -> FineTuning:
    """The fine-tuning of a task; the task must support it."""
    found = JOBS[task].fine_tuning
    assert found
    return found
