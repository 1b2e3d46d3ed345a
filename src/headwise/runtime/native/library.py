"""Bindings of the compiled library: structures, functions, and which build this processor can use.

Structures mirror those of `attention.h`, `transformer.h`, `reading.h` and `search.h`; keep both in sync.
"""

import ctypes
import os
import platform
import warnings
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from typing import Any

from headwise.errors import UserError
from headwise.runtime.native.build import ANYWHERE, FOLDER, UNTRIED, builds, library_of, version

REBUILD = f"python {FOLDER / 'build.py'}"
REMEDY = f"to build it, run {REBUILD} (needs a C compiler or `pip install ziglang`)"
SWITCH = "HEADWISE_NATIVE"  # in the environment: the build to use, 0 for none


def _fields(kind: Any, names: str) -> tuple[tuple[str, Any], ...]:
    """Several fields of one type."""
    return tuple((name, kind) for name in names.split())


class Norm(Structure):
    """Weight and bias as addresses; no weight: no norm, no bias: RMSNorm."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_float))


class Linear(Structure):
    """See products.h."""

    _fields_ = (
        *_fields(c_int, "d_in d_out depth zero_point in_blocks numbers"),
        *_fields(c_void_p, "quantised compensation scales values bias"),
    )


class Attention(Structure):
    """See transformer.h."""

    _fields_ = (
        *_fields(c_int, "heads kv_heads d_k d_v window"),
        *_fields(c_void_p, "in_ memory out"),
        *_fields(Norm, "norm q_norm k_norm"),
        ("norm_width", c_int),
        ("scale", c_float),
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
        ("half", c_int),
        *_fields(c_void_p, "types project"),
        ("width", c_int),
    )


class Rotary(Structure):
    """See transformer.h."""

    _fields_ = (("angles", c_void_p), ("half", c_int))


class Relative(Structure):
    """See transformer.h."""

    _fields_ = (("biases", c_void_p), ("longest", c_int))


class Transformer(Structure):
    """See transformer.h."""

    _fields_ = (
        *_fields(c_int, "d_model norm_first n_encoder_layers n_decoder_layers"),
        *_fields(Embeddings, "source target"),
        ("rotary", Rotary),
        *_fields(POINTER(Layer), "encoder decoder"),
        *_fields(Norm, "encoder_norm decoder_norm"),
        *_fields(c_void_p, "output relative"),
    )


class SublayerSteps(Structure):
    """See reading.h."""

    _fields_ = _fields(c_void_p, "norm out add")


class AttentionSteps(Structure):
    """See reading.h."""

    _fields_ = (
        ("ends", SublayerSteps),
        *_fields(c_void_p, "queries keys values turned_queries turned_keys scores weights concat"),
    )


class Walk(Structure):
    """See reading.h."""

    _fields_ = (
        *_fields(c_int, "decoder layer head"),
        *_fields(c_void_p, "embeddings positions sum embedded input top output memory"),
        *_fields(AttentionSteps, "self_ cross"),
        ("ffn", SublayerSteps),
        *_fields(c_void_p, "up inside"),
    )


class Recording(Structure):
    """See reading.h; arrays as addresses."""

    _fields_ = (
        *_fields(c_void_p, "encoder decoder cross residual states"),
        *_fields(c_int, "first end"),
        ("walk", Walk),
    )


class Members(Structure):
    """See search.h; decodings and outputs as arrays of addresses."""

    _fields_ = (("decodings", c_void_p), ("outputs", c_void_p), ("count", c_int))


class Ids(Structure):
    """See search.h; ids as the address of their array."""

    _fields_ = (("ids", c_void_p), ("count", c_int))


STOP = ctypes.CFUNCTYPE(c_int, POINTER(c_int32), c_int)  # `stop` of `Options`


class Options(Structure):
    """See search.h."""

    _fields_ = (
        ("beam_size", c_int),
        ("pool", c_int),
        ("bos_id", c_int),
        ("copies", c_int),
        ("n_forced", c_int),
        ("forced_end", c_int),
        ("end_at", c_int),
        ("ends", Ids),
        ("suppressed", Ids),
        ("suppressed_first", Ids),
        ("early_stopping", c_int),
        ("length_penalty", c_float),
        ("no_repeat_ngram", c_int),
        ("bos_in_ngrams", c_int),
        ("top_k", c_int),
        ("temperature", c_float),
        ("top_p", c_float),
        ("stop", STOP),
        *_fields(c_int, "first_timestamp no_timestamps latest_first among_allowed"),
        *_fields(c_void_p, "biased biases"),
        *_fields(c_int, "n_biases biased_length"),
        ("repetition_penalty", c_float),
        ("of_logits", c_int),
    )


class Limits(Structure):
    """See search.h."""

    _fields_ = (
        *_fields(c_void_p, "min_length max_length prefix streams"),
        ("prefix_length", c_int),
        ("phrases", c_void_p),
        *_fields(c_int, "n_phrases phrase_length"),
        ("context", c_void_p),
        ("context_length", c_int),
    )


class Found(Structure):
    """See search.h."""

    _fields_ = (*_fields(c_void_p, "tokens lengths token_log_probs log_probs scores"), ("longest", c_int))


class Ranked(Structure):
    """See search.h."""

    _fields_ = _fields(c_void_p, "counts tokens parents ended log_probs token_log_probs")


class Packing(Structure):
    """See attention.h."""

    _fields_ = (*_fields(c_void_p, "queries keys"), *_fields(c_int, "sentences causal heads d_k d_v half"))


class Inputs(Structure):
    """See attention.h."""

    _fields_ = (*_fields(c_void_p, "q k v"), *_fields(c_int64, "q_stride k_stride v_stride"))


@cache
def library() -> ctypes.CDLL | None:
    """The library, built for `instructions`; None if missing or switched off."""
    return opened(instructions())


def needed() -> ctypes.CDLL:
    """The library, where it is known to be available."""
    found = library()
    assert found is not None, "the compiled library is missing"
    return found


@cache
def instructions() -> str:
    """The build in use: the best that this processor can run, or the one requested by the environment.

    "" if the environment is 0, or if there is no build for this processor (with a warning). A `UserError` for a build
    that cannot be used here.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return ""
    if wanted and wanted not in builds():
        raise UserError(f"{SWITCH} = {wanted}: unknown build; choose one of {', '.join((*builds(), '0'))}, or unset it")
    usable = usable_builds()
    if wanted and wanted not in usable:
        why = "this processor or its system does not support it" if usable else f"it is not built: {REBUILD}"
        raise UserError(f"{SWITCH} = {wanted}: {why}")
    chosen = wanted or next((name for name in usable if name not in (UNTRIED, ANYWHERE)), "")
    if not chosen and unbuilt():
        warnings.warn(f"the compiled library {unbuilt()}; torch is used instead, more slowly: {REMEDY}", stacklevel=2)
    return chosen


def unbuilt() -> str:
    """The reason why a build for this processor is missing, to follow "the compiled library"; or ""."""
    if builds() and not any(library_of(name).is_file() for name in builds()):
        return "is missing"
    if set(usable_builds()) - {UNTRIED, ANYWHERE}:
        return ""
    fast = [name for name in runnable_builds() if name not in (UNTRIED, ANYWHERE)]
    return f"is not built for this processor ({fast[0]})" if fast else ""


def absence() -> str:
    """Why the library is not used here, to follow "the compiled library"."""
    if os.environ.get(SWITCH) == "0":
        return f"is disabled by {SWITCH} = 0"
    if unbuilt():
        return f"{unbuilt()}: {REMEDY}"
    if not builds():
        return f"does not exist for {platform.system()} on {platform.machine()}"
    if opened(ANYWHERE) is None:
        return f"does not fit this installation: {REMEDY}"
    return "needs AVX2, which this processor or its operating system does not support"


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16, and the build in use is one for AVX-512.

    Every processor with AMX has those of AVX-512, too.
    """
    asked = opened(ANYWHERE)
    return instructions() in ("avx512", UNTRIED) and asked is not None and bool(asked.headwise_multiplies_bfloat16())


def usable_builds() -> list[str]:
    """The available builds that this processor can run, best first."""
    return [name for name in runnable_builds() if opened(name)]


def runnable_builds() -> list[str]:
    """The builds that this processor can run, available or not, best first; needs `ANYWHERE`, which checks."""
    asked = opened(ANYWHERE)
    return [name for name in builds() if asked and asked.headwise_runs_here(name.encode())]


@cache
def opened(name: str) -> ctypes.CDLL | None:
    """A build. None if missing, or for another system; or (with a warning) if built from other sources."""
    if not name or not library_of(name).is_file():
        return None
    try:
        loaded = ctypes.CDLL(str(library_of(name)))
    except OSError:
        return None
    if not hasattr(loaded, "headwise_version") or loaded.headwise_version() != version():
        again = f"rebuild it with {REBUILD}"
        warnings.warn(f"the compiled library was built from other sources and is not used: {again}", stacklevel=2)
        return None
    if wrong := [kind.__name__ for kind in _structures() if size_in_c(loaded, kind) != ctypes.sizeof(kind)]:
        message = f"the compiled library differs in the sizes of {', '.join(wrong)} and is not used: {REMEDY}"
        warnings.warn(message, stacklevel=2)
        return None
    return declared(loaded)


def size_in_c(loaded: ctypes.CDLL, kind: type[Structure]) -> int:
    """The size in bytes that a library has compiled for a structure; 0 if it does not know it."""
    return loaded.headwise_struct_size(kind.__name__.encode())


def _structures() -> list[type[Structure]]:
    """The structures of this module."""
    return [kind for kind in Structure.__subclasses__() if kind.__module__ == __name__]


def declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the signatures of its functions."""
    for name, result, arguments in (
        ("linear_size", c_int64, (c_int, c_int, c_int)),
        ("linear", c_void_p, (*(c_void_p,) * 3, *(c_int,) * 4)),
        ("linear_rows", c_void_p, (*(c_void_p,) * 3, c_int)),
        ("activate", None, (c_int, c_void_p, c_int)),
        ("linear_forward", c_int, (c_void_p, c_void_p, c_int, c_void_p)),
        ("quantised_weights", None, (c_void_p, c_void_p, c_void_p)),
        ("to_bfloat16", None, (c_void_p, c_int64, c_void_p)),
        ("checksum", c_uint64, (c_void_p, c_int64)),
        ("start", c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
        ("read_more_prompts", c_int, (c_void_p,) * 4),
        ("read_prompts", c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p)),
        ("log_probs", c_int, (c_void_p, c_void_p, c_void_p, c_int, c_void_p, c_void_p)),
        ("start_vectors", c_void_p, (c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
        ("end", None, (c_void_p,)),
        ("encode", c_int, (*[c_void_p] * 4, c_int, c_void_p, c_void_p)),
        ("reserve_slots", c_int, (c_void_p, c_int, c_void_p, c_int, c_int64, c_int)),
        ("step", c_int, (c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p)),
        ("read", c_int, (*[c_void_p] * 5, c_int, c_void_p)),
        ("slots", c_int64, (c_void_p,)),
        ("truncate", None, (c_void_p, c_int64)),
        ("search", c_int, (c_void_p,) * 6),
        ("search_start", c_void_p, (c_void_p,) * 6),
        ("search_step", c_int, (c_void_p, c_void_p, c_int, c_void_p)),
        ("search_end", None, (c_void_p,)),
        ("set_openmp", None, (c_void_p,)),
        ("free_blocks", None, ()),
        ("set_threads", None, (c_int, c_void_p)),
        ("drop", None, (c_void_p, c_int, c_void_p, c_int64, c_int, c_float, c_int64, c_void_p, c_int, c_int)),
        ("softmax", c_int, (c_void_p, c_int, c_int64, c_int64, c_void_p, c_int)),
        ("attend", c_int, (*(c_void_p,) * 4, c_int)),
        ("attend_backward", c_int, (*(c_void_p,) * 5, c_int)),
    ):
        function = getattr(found, f"headwise_{name}")
        function.restype, function.argtypes = result, arguments
    return found


@cache
def training_library() -> ctypes.CDLL | None:
    """The library, set up to use the threads of torch's OpenMP runtime for training.

    Import torch first: its runtime is found among the symbols of the process, on Linux. Every call gets the number of
    threads (`torch.get_num_threads`), because the runtime keeps a separate number for each calling thread, which torch
    sets only when that thread uses torch.
    """
    loaded, process = library(), ctypes.CDLL(None) if os.name == "posix" else None  # not on Windows
    if loaded and hasattr(process, "GOMP_parallel"):
        loaded.headwise_set_openmp(ctypes.cast(process.GOMP_parallel, c_void_p))
    return loaded
