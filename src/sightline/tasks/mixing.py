"""A translator that is tuned on its own pairs with general ones between them (`data.mix`), against forgetting."""

from collections.abc import Callable, Mapping
from typing import Any

from sightline.config import RunConfig
from sightline.data.batch import Batch
from sightline.data.first_look import parse_pairs
from sightline.data.mixing import MixedStream, other_state
from sightline.data.prepared import prepare, spool
from sightline.data.side import Side
from sightline.errors import UserError

KEY = 13  # hexadecimal digits of a corpus's digest that a state holds, as a number


def mixed(
    config: RunConfig, tokenizer: Side, read: Callable[..., Any], own: Any, state: Mapping[str, int] | None
) -> MixedStream[Batch]:
    """Batches of `own` and of the files in `data.mix`; `UserError` for one that cannot be read, or is another than
    before.
    """
    if config.data.both_directions:
        raise UserError("data.mix does not go with data.both_directions: leave out one")
    files = [name.strip() for name in config.data.mix.split(",")]
    general = prepare(spool(parse_pairs("data.mix", files)), tokenizer, config.data)
    if not len(general):
        raise UserError(f"data.mix = {config.data.mix}: holds no pair that can be trained on")
    key = int(general.key[:KEY], 16)
    if state and state.get("general") != key:
        raise UserError(f"data.mix = {config.data.mix}: the files are not those the run was started with")
    other = read(general, state=other_state(state) if state else None)
    return MixedStream(read(own, state=state), other, config.data.mix_share, key, state["mixed"] if state else 0)
