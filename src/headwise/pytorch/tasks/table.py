"""The jobs of every task, by its name in `headwise.config.tasks.TASKS`."""

from headwise.importing import Table
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs

JOBS: Table[TaskJobs] = Table(
    {
        "translate": "headwise.pytorch.tasks.translation:JOBS",
        "denoise": "headwise.pytorch.tasks.denoising:JOBS",
        "classify": "headwise.pytorch.tasks.classification:JOBS",
        "tag": "headwise.pytorch.tasks.tagging:JOBS",
        "answer": "headwise.pytorch.tasks.answering:JOBS",
        "embed": "headwise.pytorch.tasks.embedding:JOBS",
        "forecast": "headwise.pytorch.tasks.forecasting:JOBS",
        "lm": "headwise.pytorch.tasks.language_modelling:JOBS",
        "mlm": "headwise.pytorch.tasks.masked_modelling:JOBS",
        "rtd": "headwise.pytorch.tasks.replaced_modelling:JOBS",
        "plm": "headwise.pytorch.tasks.permutation_modelling:JOBS",
        "label": "headwise.pytorch.tasks.pictures:JOBS",
        "transcribe": "headwise.pytorch.tasks.transcription:JOBS",
        "caption": "headwise.pytorch.tasks.captioning:JOBS",
    }
)


def fine_tuning_of(task: str) -> FineTuning:
    """The fine-tuning of a task; the task must support it."""
    found = JOBS[task].fine_tuning
    assert found
    return found
