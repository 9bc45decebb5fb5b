"""The string in a pickle, read without unpickling: nothing but str and bytes can come out.

A pickle is a program that can call anything. Its instructions are only listed here
(pickletools.genops executes none), and only those that hold a text and mark its end are taken.
"""

from __future__ import annotations

import base64
import binascii
import io
import pickletools
import zlib
from typing import Any

from formats.problem import LARGEST, Dropped, parsed

_TEXTS = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES",
          "BINBYTES8"}  # fmt: skip
_MARKS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT"}


def packed_json(value: Any) -> Any:
    """What JSON says, given as it is or as base64 of zlib of a pickle of its text."""
    if not isinstance(value, str):
        return parsed(value)
    try:
        return parsed(value)
    except Dropped:
        return parsed(text_in_pickle(_unpacked(value)))


def _unpacked(text: str) -> bytes:
    try:
        packed = base64.b64decode(text, validate=False)
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(packed, LARGEST)
    except (binascii.Error, ValueError, zlib.error):
        raise Dropped("private cases that can't be unpacked") from None
    if unpacker.unconsumed_tail:
        raise Dropped("over 64 MiB")
    if not unpacker.eof:
        raise Dropped("private cases that can't be unpacked")
    return data


def text_in_pickle(data: bytes) -> str:
    """The only text in a pickle that holds nothing else; Dropped when it holds more."""
    found: list[str | bytes] = []
    ended = False
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            if opcode.name in _TEXTS and isinstance(argument, str | bytes):
                found.append(argument)
            elif opcode.name == "STOP":
                ended = True
            elif opcode.name not in _MARKS:
                break
    except ValueError:  # no pickle, or cut off; UnicodeDecodeError is one
        pass
    if not ended or len(found) != 1:
        raise Dropped("private cases that are no pickled text")
    [text] = found
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise Dropped("not UTF-8") from None
