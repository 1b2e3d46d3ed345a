"""Training for `train.minutes`: how many updates fit, from what updates and validations have cost so far.

The first plan is made after half a minute. It sets `max_steps`, and with it the learning rate. Later plans follow the
speed of the machine, and change the rate only slightly.
"""

from dataclasses import dataclass, replace
from itertools import count

from headwise.config.training import TrainConfig
from headwise.text.files.sources import count_of

FIRST = 30.0, 0.05  # the first plan is made after these seconds, or after this share of a shorter run
EVERY = 0.01  # of the minutes, between two plans
RECENT = 0.3  # weight of the updates since the last plan, in the time of an update
ENDLESS = 10**12  # updates, until there is a plan
# A run has at least this many of each interval; an interval that is short enough stays as set.
AT_LEAST = {"warmup_steps": 4, "validate_every": 3, "checkpoint_every": 5, "log_every": 20}


def planned_steps(train: TrainConfig, step: int, left: float, update: float, validation: float) -> int:
    """The `max_steps` of a run that ends in `left` seconds.

    Args:
        step: updates done.
        update: seconds of an update, with everything but validations.
        validation: seconds of one; there is one every `validate_every` updates, one at the end, and one of the average
            of checkpoints if there is that.

    >>> train = TrainConfig(validate_every=100, average=1)
    >>> planned_steps(train, 50, left=100.0, update=0.5, validation=0.0)
    250
    >>> planned_steps(train, 50, left=90.0, update=0.5, validation=10.0)  # after 100 updates, and at the end
    190
    """
    last = 2 if train.average > 1 and not ends_at_zero(train) else 1
    for between in count():
        steps = max(0, int((left - (between + last) * validation) / update))
        if (step + max(1, steps) - 1) // train.validate_every - step // train.validate_every <= between:
            return step + steps
    raise AssertionError


def ends_at_zero(train: TrainConfig) -> bool:
    """Whether the learning rate falls to zero at the end."""
    return train.schedule in ("linear", "cosine")


@dataclass
class TimePlan:
    """The plan of a session. Times are seconds of training over all sessions, with the loading of data.

    Args:
        train: the settings of the run.
        step, elapsed: updates done and time, when the session begins or at the last plan.
    """

    train: TrainConfig
    step: int
    elapsed: float
    update: float = 0.0  # of an update; 0 = not known yet
    validation: float = 0.0  # of the last validation
    validating: float = 0.0  # of all validations since the last plan

    def __post_init__(self) -> None:
        self.total = 60 * self.train.minutes
        self.due = self.elapsed + min(FIRST[0], FIRST[1] * self.total)

    def before(self) -> TrainConfig:
        """The settings until the first plan of this session."""
        if not self.step:
            return replace(self.train, max_steps=ENDLESS)
        return self._within(self.train, self.elapsed / self.step)

    def validated(self, seconds: float) -> None:
        """Count a validation."""
        self.validation = seconds
        self.validating += seconds

    def after(self, now: TrainConfig, step: int, elapsed: float) -> TrainConfig:
        """The settings after update `step`; `now` itself, if no plan is due."""
        if elapsed < self.due and elapsed + self.validation < self.total:
            return now
        recent = max(1e-9, elapsed - self.elapsed - self.validating) / max(1, step - self.step)
        is_first = not self.update
        self.update = recent if is_first else (1 - RECENT) * self.update + RECENT * recent
        self.step, self.elapsed, self.validating = step, elapsed, 0.0
        self.due = elapsed + EVERY * self.total
        return self._within(self.train if is_first else now, self.update, shorten=is_first)

    def _within(self, train: TrainConfig, update: float, shorten: bool = True) -> TrainConfig:
        left = self.total - self.elapsed
        steps = planned_steps(train, self.step, left, update, self.validation)
        if shorten:
            most = {name: max(1, steps // parts) for name, parts in AT_LEAST.items()}
            train = replace(train, **{name: min(getattr(train, name), value) for name, value in most.items()})
            steps = planned_steps(train, self.step, left, update, self.validation)
        return replace(train, max_steps=steps)

    def described(self, now: TrainConfig) -> str:
        """One line for the terminal about the first plan."""
        time = count_of(self.train.minutes, "minute")
        text = f"{count_of(now.max_steps, 'update')} fit into {time}, at {self.update:.3g} seconds each"
        if not ends_at_zero(self.train):
            text += f"; train.schedule = {self.train.schedule} does not end at zero, linear and cosine do"
        return text
