"""The compiled library as Python sees it: its structures and functions, and whether it can be used here.

Structures repeat those of `attention.h`, `transformer.h` and `search.h`; keep both in step.
"""

import ctypes
import os
import warnings
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache

from sightline.errors import UserError
from sightline.native.build import ANYWHERE, FOLDER, builds, library_of, version

REBUILD = f"python {FOLDER / 'build.py'}"
SWITCH = "SIGHTLINE_NATIVE"  # in the environment: the build to use, 0 for none


class Norm(Structure):
    """Weight and bias as addresses: without a weight there is no norm, without a bias it is an RMSNorm."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float))


class Linear(Structure):
    """See products.h."""

    _fields_ = (
        ("d_in", c_int),
        ("d_out", c_int),
        ("depth", c_int),
        ("zero", c_int),
        ("levels", c_void_p),
        ("shifts", c_void_p),
        ("scales", c_void_p),
        ("values", c_void_p),
        ("bias", c_void_p),
    )


class Attention(Structure):
    """See transformer.h."""

    _fields_ = (
        ("heads", c_int),
        ("d_k", c_int),
        ("d_v", c_int),
        ("in_", c_void_p),
        ("memory", c_void_p),
        ("out", c_void_p),
        ("norm", Norm),
    )


class FeedForward(Structure):
    """See transformer.h."""

    _fields_ = (("up", c_void_p), ("down", c_void_p), ("norm", Norm), ("activation", c_int))


class Layer(Structure):
    """See transformer.h."""

    _fields_ = (("self_", Attention), ("cross", Attention), ("ffn", FeedForward))


class Embeddings(Structure):
    """See transformer.h."""

    _fields_ = (
        ("rows", c_void_p),
        ("positions", c_void_p),
        ("norm", Norm),
        ("scale", c_float),
        ("padding", c_int32),
    )


class Rotary(Structure):
    """See transformer.h."""

    _fields_ = (("turns", c_void_p), ("half", c_int))


class Transformer(Structure):
    """See transformer.h."""

    _fields_ = (
        ("d_model", c_int),
        ("norm_first", c_int),
        ("n_encoder_layers", c_int),
        ("n_decoder_layers", c_int),
        ("source", Embeddings),
        ("target", Embeddings),
        ("rotary", Rotary),
        ("encoder", POINTER(Layer)),
        ("decoder", POINTER(Layer)),
        ("encoder_norm", Norm),
        ("decoder_norm", Norm),
        ("output", c_void_p),
    )


class Members(Structure):
    """See search.h; decodings and outputs as arrays of addresses."""

    _fields_ = (("decodings", c_void_p), ("outputs", c_void_p), ("count", c_int))


class Ids(Structure):
    """See search.h; ids as the address of their array."""

    _fields_ = (("ids", c_void_p), ("count", c_int))


class Options(Structure):
    """See search.h."""

    _fields_ = (
        ("beam_size", c_int),
        ("pool", c_int),
        ("bos_id", c_int),
        ("copies", c_int),
        ("begun", c_int),
        ("forced_end", c_int),
        ("end_at", c_int),
        ("ends", Ids),
        ("suppressed", Ids),
        ("suppressed_first", Ids),
        ("ending", c_int),
        ("length_penalty", c_float),
        ("no_repeat_ngram", c_int),
        ("start_counts", c_int),
        ("top_k", c_int),
        ("temperature", c_float),
        ("top_p", c_float),
    )


class Limits(Structure):
    """See search.h."""

    _fields_ = (
        ("min_length", c_void_p),
        ("max_length", c_void_p),
        ("prefix", c_void_p),
        ("streams", c_void_p),
        ("prefix_length", c_int),
    )


class Found(Structure):
    """See search.h."""

    _fields_ = (
        ("tokens", c_void_p),
        ("lengths", c_void_p),
        ("token_log_probs", c_void_p),
        ("log_probs", c_void_p),
        ("scores", c_void_p),
        ("longest", c_int),
    )


class Ranked(Structure):
    """See search.h."""

    _fields_ = (
        ("counts", c_void_p),
        ("tokens", c_void_p),
        ("parents", c_void_p),
        ("ended", c_void_p),
        ("log_probs", c_void_p),
        ("token_log_probs", c_void_p),
    )


class PackedShape(Structure):
    """`Packing` of attention.h."""

    _fields_ = (
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("sentences", c_int),
        ("causal", c_int),
        ("heads", c_int),
        ("d_k", c_int),
        ("d_v", c_int),
        ("half", c_int),
    )


class Inputs(Structure):
    """See attention.h."""

    _fields_ = (
        ("q", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("q_stride", c_int64),
        ("k_stride", c_int64),
        ("v_stride", c_int64),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The library, built for `instructions`; None where there is none or nobody wants it."""
    return opened(instructions())


def needed() -> ctypes.CDLL:
    """The library, for whoever knows that it is there."""
    found = library()
    assert found is not None, "the compiled library is missing"
    return found


@cache
def instructions() -> str:
    """The build in use: the best that this processor can run, or the one the environment asks for.

    Nothing where the environment says 0, or where none was built, which a warning says once. A `UserError` for one that
    cannot be used here.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return ""
    if wanted and wanted not in builds():
        raise UserError(f"{SWITCH} = {wanted} is none of {', '.join((*builds(), '0'))}: choose one, or leave it out")
    usable = usable_builds()
    if wanted and wanted not in usable:
        why = "this processor lacks it" if usable else f"it is not built: {REBUILD}"
        raise UserError(f"{SWITCH} = {wanted}: {why}")
    if builds() and not any(library_of(name).is_file() for name in builds()):
        remedy = f"with a C compiler, or after `pip install ziglang`, {REBUILD} makes it"
        warnings.warn(f"the compiled library is not here: torch does its work, more slowly; {remedy}", stacklevel=2)
    return wanted or next((name for name in usable if name != ANYWHERE), "")


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16, and the build in use is one for AVX-512.

    Every processor with AMX has those of AVX-512, too.
    """
    asked = opened(ANYWHERE)
    return instructions() == "avx512" and asked is not None and bool(asked.sightline_multiplies_bfloat16())


def usable_builds() -> list[str]:
    """The builds that are there and that this processor can run, best first."""
    asked = opened(ANYWHERE)
    runs = (lambda name: asked.sightline_runs_here(name.encode())) if asked else (lambda _: False)
    return [name for name in builds() if runs(name) and opened(name)]


@cache
def opened(name: str) -> ctypes.CDLL | None:
    """One build. None where it is not there, or for another system; or of other sources, which it says."""
    if not name or not library_of(name).is_file():
        return None
    try:
        loaded = ctypes.CDLL(str(library_of(name)))
    except OSError:
        return None
    if not hasattr(loaded, "sightline_version") or loaded.sightline_version() != version():
        again = f"build it anew with {REBUILD}"
        warnings.warn(f"the compiled library is not of these sources and is left out: {again}", stacklevel=2)
        return None
    return declared(loaded)


def declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library, whose functions now know what they take and give."""
    for name, result, arguments in (
        ("linear_size", c_int64, (c_int, c_int, c_int)),
        ("linear", c_void_p, (*(c_void_p,) * 3, *(c_int,) * 4)),
        ("linear_rows", c_void_p, (*(c_void_p,) * 3, c_int)),
        ("activate", None, (c_int, c_void_p, c_int)),
        ("apply", c_int, (c_void_p, c_void_p, c_int, c_void_p)),
        ("levels", None, (c_void_p, c_void_p, c_void_p)),
        ("start", c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
        ("end", None, (c_void_p,)),
        ("make_room", c_int, (c_void_p, c_int, c_void_p, c_int, c_int64, c_int)),
        ("step", c_int, (c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p)),
        ("places", c_int64, (c_void_p,)),
        ("forget", None, (c_void_p, c_int64)),
        ("search", c_int, (c_void_p,) * 6),
        ("search_start", c_void_p, (c_void_p,) * 6),
        ("search_step", c_int, (c_void_p, c_void_p, c_int, c_void_p)),
        ("search_end", None, (c_void_p,)),
        ("team", None, (c_void_p,)),
        ("drop", None, (c_void_p, c_int, c_void_p, c_int64, c_int, c_float, c_int64, c_void_p, c_int, c_int)),
        ("softmax", c_int, (c_void_p, c_int, c_int64, c_int64, c_void_p, c_int)),
        ("attend", c_int, (*(c_void_p,) * 4, c_int)),
        ("attend_backward", c_int, (*(c_void_p,) * 5, c_int)),
    ):
        function = getattr(found, f"sightline_{name}")
        function.restype, function.argtypes = result, arguments
    return found


@cache
def training_library() -> ctypes.CDLL | None:
    """The library, which from now on shares the passes of a training step among threads of torch's runtime.

    For whoever has imported torch: its OpenMP runtime is found among the functions of the process, on Linux. How many
    threads is said with each call, as `torch.get_num_threads` has it: the runtime itself keeps a number for each thread
    that calls, and torch's is in it only once that thread has asked torch.
    """
    loaded, process = library(), ctypes.CDLL(None) if os.name == "posix" else None  # Windows knows no such handle
    if loaded and hasattr(process, "GOMP_parallel"):
        loaded.sightline_team(ctypes.cast(process.GOMP_parallel, c_void_p))
    return loaded
