"""Inputs made of real ones by damage that knows their structure: bytes, text, documents of JSON or TOML, tables.

``Mutator`` makes any number of inputs from a seed, the same ones each time. ``damage`` works on plain bytes: bits,
runs, length fields of 1, 2, 4 or 8 bytes, truncation, repetition, parts of others. ``edit`` takes a document apart and
changes a value, a key, a type, a depth. ``spoil`` works on the words of a text: numbers, quotes, brackets, lines.
Inputs are generated data.
"""

import json
import random
import re
import struct
from collections.abc import Callable, Sequence

import tomli_w

_DEEP = 3000
"""Depth of nesting beyond the interpreter's recursion limit; TOML and JSON parsers recurse for each level."""
_LONG = 5000
"""Number of digits beyond the interpreter's limit for integers."""
_LONGEST = 1 << 20
"""Largest size of an input, in bytes."""
_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_WIDE = (1 << 63, (1 << 64) - 1, (1 << 63) - 1)
_TOKENS: tuple[bytes, ...] = (
    b"\0",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    "\u202e\u0000\u2028\U0001f9ec".encode(),
    b"nan",
    b"inf",
    b"-0",
    b"1e999",
    b"9" * _LONG,
    b"-" + b"9" * 400,
    b"1_0",
    b"0x10",
    b"../../../../etc/passwd",
    b"/dev/zero",
    b"%s%n",
    b"null",
    b"true",
    b'"',
    b"'",
    b'"""',
    b"\\ud800",
    b"\\u0000",
    b"[" * _DEEP,
    b'{"a":' * _DEEP,
    b"{a=" * _DEEP,
    b",",
    b"=",
    b"#",
    b"[[run]]",
    b"a" * 200_000,
    b"a." * 2000 + b"a=1",
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")

Document = dict[str, object]


def _odd(draw: random.Random) -> object:
    """Returns an unexpected value."""
    values: Sequence[Callable[[], object]] = (
        lambda: None,
        lambda: draw.choice((True, False)),
        lambda: draw.choice((0, -1, 1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, -(1 << 63), 10**400)),
        lambda: draw.choice((0.0, -0.0, 1e-320, 1e308, float("nan"), float("inf"), -float("inf"))),
        lambda: "",
        lambda: draw.choice(
            ("\0", "\ud800", "\u202e", "\x1b[2J", "\ufeff", "../x", "nan", "1e999")
        ),
        lambda: "x" * draw.choice((1, 255, 70_000)),
        lambda: "f" * draw.choice((63, 64, 65)),
        lambda: [],
        lambda: {},
        lambda: [[]],
        lambda: [{}],
        lambda: [None],
        lambda: {"": 0},
        lambda: [0] * draw.choice((2, 3, 5000)),
        lambda: _nested(draw.choice((3, 100, 900)), in_lists=draw.random() < 0.5),
    )
    return draw.choice(values)()


def _nested(depth: int, *, in_lists: bool) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


class Mutator:
    """A generator with ``seed``; the ``seeds`` are the inputs to damage, and the source of parts."""

    def __init__(self, seed: str, seeds: Sequence[bytes]) -> None:
        self.draw = random.Random(seed)  # to be the same again
        self._seeds = seeds

    def pick(self) -> bytes:
        """Returns one of the seeds."""
        return self.draw.choice(self._seeds)

    def several(self, change: Callable[[bytes], bytes], data: bytes) -> bytes:
        """Applies ``change`` mostly once, seldom many times."""
        for _ in range(min(12, int(self.draw.expovariate(0.9)) + 1)):
            data = change(data)
        return data[:_LONGEST]

    def damage(self, data: bytes) -> bytes:
        """Damages plain bytes."""
        changes = (
            self._bit,
            self._bit,
            self._run,
            self._field,
            self._field,
            self._cut,
            self._left_out,
            self._again,
            self._part_of_another,
            self._token,
            self._more,
        )
        return self.draw.choice(changes)(data)

    def spoil(self, data: bytes) -> bytes:
        """Damages a text by its words."""
        changes = (
            self._number,
            self._number,
            self._token,
            self._line_again,
            self._line_out,
            self._lines_exchanged,
            self._left_out,
            self._part_of_another,
            self._bit,
            self._cut,
        )
        return self.draw.choice(changes)(data)

    def edit(self, document: object) -> object:
        """Returns a document with one value, key or type changed; unchanged parts are shared with the original."""
        if not isinstance(document, dict | list) or not document or self.draw.random() < 0.1:
            return _odd(self.draw)
        if isinstance(document, list):
            return self._edited_list(document)
        return self._edited_table(document)

    def json(self, data: bytes) -> bytes:
        """Damages JSON, edited as a document or spoilt as a text."""
        if self.draw.random() < 0.4:
            return self.several(self.spoil, data)
        edited = json.loads(data)
        for _ in range(1 + (self.draw.random() < 0.2)):
            edited = self.edit(edited)
        return json.dumps(edited, sort_keys=True).encode()[:_LONGEST]

    def toml(self, data: bytes, parsed: Document) -> bytes:
        """Damages TOML, edited as the document ``parsed`` or spoilt as a text."""
        if self.draw.random() < 0.5:
            return self.several(self.spoil, data)
        edited = self.edit(parsed)
        try:
            return tomli_w.dumps(edited if isinstance(edited, dict) else {"x": edited}).encode()
        except (TypeError, ValueError, RecursionError):
            return self.several(self.spoil, data)  # Values that TOML cannot express, such as null.

    def _edited_list(self, items: list[object]) -> list[object]:
        at = self.draw.randrange(len(items))
        changed = list(items)
        match self.draw.randrange(6):
            case 0:
                del changed[at]
            case 1:
                changed.insert(at, items[at])
            case 2:
                changed.reverse()
            case _:
                changed[at] = self.edit(items[at])
        return changed

    def _edited_table(self, table: Document) -> Document:
        key = self.draw.choice(list(table))
        changed = dict(table)
        match self.draw.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[self.draw.choice(("", "\0", "__class__", key.upper(), key + "x"))] = table[
                    key
                ]
            case 2:
                changed[key] = changed[self.draw.choice(list(table))]
            case _:
                changed[key] = self.edit(table[key])
        return changed

    def _at(self, data: bytes) -> int:
        return self.draw.randrange(len(data) + 1)

    def _bit(self, data: bytes) -> bytes:
        if not data:
            return b"\1"
        changed = bytearray(data)
        changed[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
        return bytes(changed)

    def _run(self, data: bytes) -> bytes:
        at, size = self._at(data), self.draw.choice((1, 2, 4, 16))
        filled = self.draw.choice((b"\0", b"\xff", None))
        put = self.draw.randbytes(size) if filled is None else filled * size
        return data[:at] + put + data[at + size :]

    def _field(self, data: bytes) -> bytes:
        width = self.draw.choice((1, 2, 4, 8))
        if len(data) < width:
            return data
        at = (
            self.draw.randrange(min(len(data), 1 << self.draw.randrange(4, 20)) - width + 1)
            if (len(data) > width)
            else 0
        )
        order = self.draw.choice(("<", ">"))
        form = order + {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
        most = (1 << 8 * width) - 1
        (there,) = struct.unpack_from(form, data, at)
        near = (there + self.draw.choice((-1, 1, 8, 256))) & most
        value = self.draw.choice((near, self.draw.choice(_EDGES + _WIDE) & most))
        return data[:at] + struct.pack(form, value) + data[at + width :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._at(data)]

    def _left_out(self, data: bytes) -> bytes:
        first, last = sorted((self._at(data), self._at(data)))
        return data[:first] + data[min(last, first + 64) :]

    def _again(self, data: bytes) -> bytes:
        first, last = sorted((self._at(data), self._at(data)))
        part = data[first : min(last, first + 4096)]
        return data[:last] + part * self.draw.choice((1, 1, 2, 40)) + data[last:]

    def _part_of_another(self, data: bytes) -> bytes:
        other = self.pick()
        return data[: self._at(data)] + other[self._at(other) :]

    def _token(self, data: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self.draw.choice(_TOKENS) + data[at:]

    def _more(self, data: bytes) -> bytes:
        return data + self.draw.randbytes(self.draw.choice((1, 4, 1000)))

    def _number(self, data: bytes) -> bytes:
        found = list(_NUMBER.finditer(data[:_LONGEST]))
        if not found:
            return self._token(data)
        number = self.draw.choice(found)
        odd = (
            b"0",
            b"-1",
            b"nan",
            b"inf",
            b"1e999",
            b"1e-999",
            b"9" * 20,
            b"9" * _LONG,
            b"0.5",
            b"",
        )
        return data[: number.start()] + self.draw.choice(odd) + data[number.end() :]

    def _line_again(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        at = self.draw.randrange(len(lines))
        return b"".join(lines[: at + 1] + lines[at:])

    def _line_out(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        del lines[self.draw.randrange(len(lines))]
        return b"".join(lines)

    def _lines_exchanged(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        if len(lines) > 1:
            first, second = self.draw.sample(range(len(lines)), 2)
            lines[first], lines[second] = lines[second], lines[first]
        return b"".join(lines)
