"""Decoding of files. A file may declare any encoding of Python's, except those that are not file encodings."""

import codecs

# Not file encodings; decoding `punycode` also takes quadratic time.
UNSUPPORTED = ("punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem")


def decode_file(data: bytes, encoding: str) -> str:
    """Decode the bytes of a file.

    Raises:
        LookupError: unknown encoding, or not a file encoding.
        UnicodeDecodeError: the bytes are not in this encoding.

    >>> decode_file("café".encode("latin-1"), "latin-1")
    'café'
    """
    if codecs.lookup(encoding).name.replace("-", "_") in UNSUPPORTED:
        raise LookupError(f"not a file encoding: {encoding}")
    return data.decode(encoding)
