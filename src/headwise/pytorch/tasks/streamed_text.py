"""Training data of translation models that is a stream of shards (`stream:PATTERN`)."""

from headwise.config.data import TranslationData
from headwise.config.settings import RunConfig
from headwise.errors import UserError
from headwise.pytorch.data.streamed_pairs import StreamedPairs
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.text.files.sources import STREAM_PREFIX
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared.stream_shards import Shards
from headwise.text.tokens.pair_tokenizer import PairTokenizer


def check_stream(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for options and settings that do not go with a stream of shards."""
    if streams := [path for path in request.valid if path.startswith(STREAM_PREFIX)]:
        raise UserError(f"--valid {streams[0]}: validation reads the same pairs every time; name files, not a stream")
    streams = [path for path in request.train if path.startswith(STREAM_PREFIX)]
    if not streams:
        return
    if config.model.task != "translate":
        raise UserError(f"--train {streams[0]}: streams are for --task translate, not for {config.model.task}")
    if parse_validation_size(request.valid):
        raise UserError(f"--valid {request.valid[0]}: nothing is held out of a stream; name validation files")
    if request.add:
        raise UserError(f"--add {request.add[0]}: a resumed run reads all shards that match {streams[0]}; leave it out")
    data, settings = config.data, list[str]()
    assert isinstance(data, TranslationData)
    settings += ["--alignments"] if request.alignments else []
    settings += ["train.alignment_weight"] if config.train.alignment_weight else []
    settings += ["data.temperature"] if data.temperature != 1 else []
    settings += [f"data.{name}" for name in ("weights", "mix", "both_directions") if getattr(data, name)]
    if settings:
        raise UserError(f"--train {streams[0]}: {settings[0]} does not go with a stream; leave it out")


def streamed_pairs(
    request: TrainRequest, config: RunConfig, tokenizer: PairTokenizer, shards: Shards
) -> tuple[StreamedPairs, dict[str, str]]:
    """The training pairs of shards, and their part of the entry "corpus" of config.json."""
    data = config.data
    assert isinstance(data, TranslationData)
    version = shards.version
    size = sum(one.size for one in shards.files) / 1e9
    notify(
        request,
        f"training on a stream of {len(shards.files):,} shards, {size:,.3g} GB; "
        f"{data.shuffle_buffer:,} pairs are shuffled at once (data.shuffle_buffer)",
    )
    return StreamedPairs(shards, tokenizer, data), {"key": "stream", "shards": version}
