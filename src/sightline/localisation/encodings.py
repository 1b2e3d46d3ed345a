"""Encodings of files: what a file names may be any that Python has, but for those that are none of files."""

import codecs

# Not of files, and `punycode` takes time in proportion to the square of a text.
REFUSED = ("punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem")


def decoded(data: bytes, encoding: str) -> str:
    """The text of bytes.

    Raises:
        LookupError: there is no such encoding of files.
        UnicodeDecodeError: the bytes are in another.

    >>> decoded("café".encode("latin-1"), "latin-1")
    'café'
    """
    if codecs.lookup(encoding).name.replace("-", "_") in REFUSED:
        raise LookupError(f"no encoding of files: {encoding}")
    return data.decode(encoding)
