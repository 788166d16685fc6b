"""Differences of two configurations, key by key, for people who have to agree on one.

A party sends ``agreed_bytes`` to a peer whose digest differs; the peer turns them into ``differences_text``.
Configurations are public (`Config.agreed`). The peer's bytes are not trusted: reading has a limit, and the text
contains no control characters that would move a terminal's cursor.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from parties.config.config import Config, agreed_digest

MAX_BYTES = 1 << 24
"""Maximum length of a configuration as JSON, in bytes."""
_LONGEST, _LONGEST_KEY = 60, 120
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """A dotted ``key`` and its two values as JSON; None where a configuration lacks the key."""

    key: str
    ours: str | None
    theirs: str | None

    def __str__(self) -> str:
        shown = [
            "nothing" if value is None else _shortened(value) for value in (self.ours, self.theirs)
        ]
        return f"{self.key}: {shown[0]} here, {shown[1]} there"


def differences(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[Difference]:
    """Returns the differences of two documents from ``Config.agreed``; columns and servers are matched by name."""
    here, there = dict(_flatten("", ours)), dict(_flatten("", theirs))
    keys = [*here, *(key for key in there if key not in here)]
    return [
        Difference(key, here.get(key), there.get(key))
        for key in keys
        if here.get(key) != there.get(key)
    ]


def _flatten(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flatten(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, Sequence) and not isinstance(value, str) and _named(value):
        yield f"{prefix} (their order)", json.dumps([item["name"] for item in value])
        for item in value:
            yield from _flatten(
                f"{prefix}.{item['name']}", {k: item[k] for k in item if k != "name"}
            )
    else:
        yield prefix, json.dumps(value, sort_keys=True)


def _named(items: Sequence[object]) -> bool:
    names = [item.get("name") for item in items if isinstance(item, Mapping)]
    texts = {name for name in names if isinstance(name, str)}
    return bool(items) and len(texts) == len(items)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def agreed_bytes(config: Config) -> bytes:
    """Returns the agreed part of a configuration as JSON."""
    return json.dumps(config.agreed(), sort_keys=True).encode()


def differences_text(config: Config, theirs: bytes, peer: str, *, where: str = "") -> str:
    """Returns the differences between ``config`` and ``theirs``, the bytes of the party named ``peer``, in one line.

    Their values are those "at" the peer, or ``where`` else.
    """
    unread = f"{peer} does not show its configuration"
    try:
        lines = json.loads(theirs)
        if not isinstance(lines, dict):
            return unread
        found = differences(json.loads(agreed_bytes(config)), lines)
    except (ValueError, RecursionError):
        return unread
    if not found:
        same = agreed_digest(lines) == config.digest()
        return f"{peer} shows the same configuration" + ("" if same else ", but for its form")
    where = where or f"at {peer}"
    texts = [_printable(str(difference), where) for difference in found[:_MAX_SHOWN]]
    more = f"; and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return "; ".join(texts) + more


def _printable(text: str, where: str) -> str:
    """Replaces control characters of a difference's text, and "there" by ``where``; limits the length."""
    text = text.removesuffix(" there") + f" {where}"
    longest = _LONGEST_KEY + 2 * _LONGEST + len(where) + 17
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
