"""The compiled library as Python sees it: its structures and functions, and whether it can be used here.

Structures repeat those of `attention.h`, `transformer.h` and `search.c`; keep both in step.
"""

import ctypes
import os
import warnings
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache

from sightline.native.build import LIBRARY, version

REBUILD = f"build it anew with python {LIBRARY.with_name('build.py')}"
SWITCH = "SIGHTLINE_NATIVE"  # 0 in the environment: do without the library


class Norm(Structure):
    """Weight and bias as addresses: without a weight there is no norm, without a bias it is an RMSNorm."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float))


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


class Transformer(Structure):
    """See transformer.h."""

    _fields_ = (
        ("d_model", c_int),
        ("norm_first", c_int),
        ("n_encoder_layers", c_int),
        ("n_decoder_layers", c_int),
        ("source", Embeddings),
        ("target", Embeddings),
        ("encoder", POINTER(Layer)),
        ("decoder", POINTER(Layer)),
        ("encoder_norm", Norm),
        ("decoder_norm", Norm),
        ("output", c_void_p),
    )


class Members(Structure):
    """See search.c; decodings and outputs as arrays of addresses."""

    _fields_ = (("decodings", c_void_p), ("outputs", c_void_p), ("count", c_int))


class Ids(Structure):
    """See search.c; ids as the address of their array."""

    _fields_ = (("ids", c_void_p), ("count", c_int))


class Options(Structure):
    """See search.c."""

    _fields_ = (
        ("beam_size", c_int),
        ("pool", c_int),
        ("bos_id", c_int),
        ("begun", c_int),
        ("forced_end", c_int),
        ("end_at", c_int),
        ("ends", Ids),
        ("suppressed", Ids),
        ("suppressed_first", Ids),
        ("ending", c_int),
        ("length_penalty", c_float),
    )


class Limits(Structure):
    """See search.c."""

    _fields_ = (("min_length", c_void_p), ("max_length", c_void_p), ("prefix", c_void_p), ("prefix_length", c_int))


class Found(Structure):
    """See search.c."""

    _fields_ = (
        ("tokens", c_void_p),
        ("lengths", c_void_p),
        ("token_log_probs", c_void_p),
        ("log_probs", c_void_p),
        ("scores", c_void_p),
        ("longest", c_int),
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
    """The library; None where it was not built, this processor lacks its instructions, or the switch says no."""
    if os.environ.get(SWITCH) == "0" or not LIBRARY.is_file():
        return None
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError:  # made for another system
        return None
    # What is not of these sources may know no way to ask, and then must not be asked for anything.
    asked = hasattr(loaded, "sightline_runs_here")
    if asked and not loaded.sightline_runs_here():
        return None
    if not asked or loaded.sightline_version() != version():
        warnings.warn(f"the compiled library is not of these sources and is left out: {REBUILD}", stacklevel=2)
        return None
    return declared(loaded)


def declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library, whose functions now know what they take and give."""
    for name, result, arguments in (
        ("linear", c_void_p, (c_void_p, c_void_p, c_int, c_int, c_int, c_int)),
        ("linear_rows", c_void_p, (c_void_p, c_void_p, c_int)),
        ("linear_free", None, (c_void_p,)),
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
        ("team", None, (c_void_p,)),
        ("drop", None, (c_void_p, c_void_p, c_int64, c_int, c_float, c_int64, c_void_p, c_int)),
        ("softmax", None, (c_void_p, c_int64, c_int64, c_void_p, c_int)),
        ("attend", c_int, (*(c_void_p,) * 4, c_int)),
        ("attend_backward", c_int, (*(c_void_p,) * 5, c_int)),
    ):
        function = getattr(loaded, f"sightline_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


@cache
def training_library() -> ctypes.CDLL | None:
    """The library, which from now on shares the passes of a training step among threads of torch's runtime.

    For whoever has imported torch: its OpenMP runtime is found among the functions of the process, on Linux. How many
    threads is said with each call, as `torch.get_num_threads` has it: the runtime itself keeps a number for each thread
    that calls, and torch's is in it only once that thread has asked torch.
    """
    loaded, process = library(), ctypes.CDLL(None)
    if loaded and hasattr(process, "GOMP_parallel"):
        loaded.sightline_team(ctypes.cast(process.GOMP_parallel, c_void_p))
    return loaded
