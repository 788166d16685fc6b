"""Encodings of text that is not UTF-8 and has no byte order mark, recognised from its bytes or asked.

``recognise_encoding`` compares how likely the bytes are as a text of each encoding in ``_FAMILIES``. A model per
language has the letters beyond ASCII in the order of their frequency, which follows Zipf's law; one per East Asian
encoding has its commonest characters. Every different word counts once. An encoding is recognised only if the bytes are
a hundred times likelier in it than in every other one that reads another text, and than in a model of bytes that are
no text; otherwise nothing is guessed, and the error names the likely ones.

The rules are public. The bytes are secret, at their owner; an error has single signs of them.
Limits: languages of ``_FAMILIES``; orders of frequency are approximate; evidence is taken from ``_MOST_LINES`` lines.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from mechanisms.calendar_names import NAMES

_MOST_LINES, _MOST_WORDS = 20_000, 5_000
"""Most different lines that evidence is taken from, and most different words."""
_MARGIN, _ONE_WORD, _KNOWN, _RARE, _REGIONAL = 5.0, 2.0, 6.0, 6.0, 3.0
"""Least difference of logarithms by which one encoding is likelier, what one word alone needs besides, and what a name
of the calendar gains; handicaps of encodings that few files have today, and of some that are used in few countries."""
_UTF16_ZEROS, _ONE_SIDE = 0.05, 20
"""Least share of bytes that are zero in UTF-16 without a byte order mark, as those of delimiters, digits and line ends;
of so many zeros one at most is in the other places."""
_SHOWN_SIGNS, _SHOWN_CANDIDATES = 6, 4

_LINE = re.compile(rb"[^\r\n]*[\x80-\xff][^\r\n]*")
_WORD = re.compile(r"[^\x00-\x3f]*[^\x00-\x7f][^\x00-\x3f]*")
"""Words: what digits, blanks and most separators leave, in any of the encodings."""
_HALF_WIDTH_BY_LATIN = re.compile("[A-Za-z][\uff61-\uff9f]|[\uff61-\uff9f][A-Za-z]")
_HIGH = re.compile(r"[^\x00-\x7f]")

_WESTERN = (
    "üäöß", "éèàêçôùâîûëïœæÿ", "óíáéñúü", "ãçáéíóõêâúàôü", "àèùòéì", "àéèóòíçúïü", "äåöé", "øåæéòô", "íáðóæéöúþý",
    "ëéïèóöü", "äüõöšž",
)  # fmt: skip
_CENTRAL = (
    "łąężśóćńź", "íáéěřščýžůúťďňó", "áíčšýéžúľťňďôóäŕĺ", "áéöőóüíúű", "ăîâşţ", "čšžćđ", "üäöß", "ëç",
)  # fmt: skip
_CYRILLIC = (
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё", "оаниівтерсклудмпяьзгбчйхцжшюїщєфґ", "аеоинтрсвлдкпмзяъбучгщцйжхшюьф",
    "аоиенртсјвукдмлпгзбчшжцхњћљђџф",
)  # fmt: skip
_GREEK = ("αοιεητσνςρκπυμάίλόέγδωήχθφύώβξζψϊϋΐΰ",)
_ARABIC = ("اليمونرتبةعدسفهكقحجشطصخضذثئءغزظىأإآؤپچژگ",)
_HEBREW = ("יוהלארתבשמםנחדכקעפטןגסצזךףץ",)
_THAI = ("านรอกเง่มยล้วดัทสตีปบคิหแจพชขะใไุื์ำึโูธ็ณผศซภถฉษฎฐญฟ",)
_TURKISH = ("ıüşğçöİâîû",)
_BALTIC = ("ėųšžąįūčę", "āīēšņūļģčžķ", "äüõöšž")
_UNITS, _USUAL_SIGNS = "€£°µ§", "–—’‘“”„«»…²³½\u00a0№"
_SEEN_SIGNS = "¥¢±×·´¼¾©®™•‰‹›‚¿¡ªº¤¹¬¶†‡÷\u00ad"
_WITHIN_WORDS, _OPENING, _CLOSING = "’‘´·–—\u00a0", "«„“‘‹¿¡§°µ№", "»“”›…™®©²³ªº"
"""Signs that may stand between letters, only before one, and only behind one."""
_CASES_OF_NO_WORD = re.compile("lu|uul")
"""Small and capital letters as no word has them."""

_KOREAN = (
    "이다는의에을가고하지은도한로사대기아리자어나시를서인일해정있과상수그만전것들부제여보장주라구성으스유동원면오마안소연"
    "조비공신무개국경우세선생내회년관위당방거치용문적학트분할남울산광역충청북강천김박최"
)
_JAPANESE = (
    "日一国会人年大十二本中長出三同時政事自行社見月分議後前民生連五発間対上部東者党地合市業内相方四定今回新場金員九入"
    "選立開手米力学問高代明実円関決子動京全目表戦経通外最言氏現理調体化田当八六約主題下首意法不来作性的要用制治度務強"
    "気小七成期公持野協取都和統以機平総加山思家話世受区領多県続進正安設保改数記院女男番号名住所阪北海南西"
)
_SIMPLIFIED = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种"
    "事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日者意无力与长机十民第公此"
    "工使情明性知全三关点正业外将两高间由问最重物手应体相见利二等产新制身加西月合回代内信表化位次度常先海通教原东立员"
    "水名入口平系气别女男四电数安市北京南山金号编城区县省医院"
)
_TRADITIONAL = (
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然家種"
    "事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日者意無力與長機十民第公此"
    "工使情明性知全三關點正業外將兩高間由問最重物手應體相見利二等產新制身加西月合回代內信表化位次度常先海通教原東立員"
    "水名入口平系氣別女男四電數安市北臺台灣南山金號編城區縣省醫院"
)
_COMMON, _LEVEL, _PUNCTUATION, _ELSE = 0.6, 0.35, 0.04, 0.01
"""Shares of the commonest characters, of those of the first level, of punctuation, and of all others."""
_KANA_SHARE, _KANA, _FULL_WIDTH_DIGITS, _OTHER_LETTERS = 0.5, 170, 0.3, 0.1
"""Shares of syllables, of which there are so many, of digits as wide as characters, of Greek and Cyrillic letters."""
_ASCII_SHARE, _LETTER_FLOOR = 0.9, 0.001
_SIGN_SHARES = (
    dict.fromkeys(_SEEN_SIGNS, 0.002)
    | dict.fromkeys(_USUAL_SIGNS, 0.03)
    | dict.fromkeys(_UNITS, 0.3)
)
_ASCII = math.log(_ASCII_SHARE / 26)
_BEYOND = 1 - _ASCII_SHARE
"""Share of letters beyond ASCII in a language of Latin letters."""
_NO_TEXT = math.log(_BEYOND / 128)
_AGAINST, _ALONE, _SELDOM = -10.0, -6.0, -4.0
"""Logarithms for what no writing has (a capital behind a small letter, two scripts in a word), for a letter alone, and
for a sign that few words have in its place."""


class UnclearEncoding(ValueError):
    """The encoding of a text is not clear; the message says what would help."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.place = f", line {line}" if line else ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Reading:
    """The words of the evidence in one encoding, with the logarithm of their likelihood."""

    encoding: str
    words: tuple[str, ...]
    score: float


def recognise_encoding(content: bytes) -> str:
    """Returns the encoding of bytes that are not UTF-8. Raises ``UnclearEncoding`` if it is not sure, or unknown."""
    lines = dict.fromkeys(found[0] for found in islice(_LINE.finditer(content), _MOST_LINES))
    readings = sorted(_readings(b"\n".join(lines)), key=lambda each: -each.score)
    margin = _MARGIN + _ONE_WORD * (bool(readings) and len(readings[0].words) == 1)
    likely = [r for r in readings if r.score > max(readings[0].score - margin, _no_text(r))]
    texts = {reading.words: reading for reading in reversed(likely)}
    sure = len(texts) == 1 and likely[0].score - margin > _no_text(likely[0])
    if sure and _decodes(content, likely[0].encoding):
        return likely[0].encoding
    shown = list(texts.values())[::-1][:_SHOWN_CANDIDATES]
    if not shown:
        raise UnclearEncoding(
            "is not UTF-8, and its encoding is not recognised; give it, as in --encoding cp1252, or save the table as "
            "UTF-8"
        )
    several = " or ".join(f"{r.encoding} (with {_signs(r.words)})" for r in shown)
    raise UnclearEncoding(
        f"is not UTF-8, and its encoding is not clear: it may be {several}; give it, as in --encoding "
        f"{shown[0].encoding}, or save the table as UTF-8"
    )


def utf16_of(content: bytes) -> str:
    """Returns the UTF-16 of bytes without a mark of which every second one alone is often zero; "" for others."""
    sample = content[: 1 << 16]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if even + odd < max(1, _UTF16_ZEROS * len(sample)) or min(even, odd) * _ONE_SIDE > even + odd:
        return ""
    name = "utf-16-le" if odd > even else "utf-16-be"
    # A NUL in a text of ASCII stands in one place, too, but leaves no line end there.
    if not _decodes(content, name) or not set("\r\n").intersection(content.decode(name)):
        return ""
    return name


def _readings(evidence: bytes) -> Iterator[_Reading]:
    for family, languages, handicap in _FAMILIES:
        for encoding in family:
            try:
                text = evidence.decode(encoding)
            except UnicodeDecodeError:
                continue
            words = dict.fromkeys(found[0] for found in _WORD.finditer(text))
            if len(words) > _MOST_WORDS:
                words = dict.fromkeys([*words][:_MOST_WORDS])
            if not words or any(map(_impossible, {sign for word in words for sign in word})):
                continue
            score = max(sum(map(language.word, words)) for language in languages)
            yield _Reading(encoding, tuple(words), score - handicap)


def _decodes(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _no_text(reading: _Reading) -> float:
    """Returns the logarithm of the likelihood of the words' bytes as bytes that are no text."""
    score = -_RARE
    for word in reading.words:
        data = word.encode(reading.encoding)
        high = sum(byte > 127 for byte in data)
        score += high * _NO_TEXT + (len(data) - high) * _ASCII
    return score


def _signs(words: Iterable[str]) -> str:
    found = dict.fromkeys(sign for word in words for sign in _HIGH.findall(word))
    return " ".join([*found][:_SHOWN_SIGNS]) + " ..." * (len(found) > _SHOWN_SIGNS)


def _impossible(sign: str) -> bool:
    """Returns whether no table has a sign: a control character, a box, a private or unassigned one."""
    return sign > "\x7f" and (
        unicodedata.category(sign) in ("Cc", "Co", "Cn", "Cs") or "\u2500" <= sign <= "\u259f"
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Alphabet:
    """A language with an alphabet: the share of each letter; ``latin`` if most letters are ASCII."""

    shares: Mapping[str, float]
    latin: bool

    @classmethod
    def of(cls, letters: str, family: str, *, latin: bool) -> _Alphabet:
        """Returns the language whose letters are so frequent, beside which the family's other letters are rare."""
        whole = sum(1 / rank for rank in range(1, len(letters) + 1))
        weight = _BEYOND if latin else 1.0
        shares = dict.fromkeys(family, weight * _LETTER_FLOOR)
        return cls(
            shares | {each: weight / (rank * whole) for rank, each in enumerate(letters, 1)}, latin
        )

    def word(self, word: str) -> float:
        """Returns the logarithm of a word's likelihood."""
        if word.strip(".").lower() in _CALENDAR:
            return _KNOWN + len(word) * _ASCII
        cases = "".join("u" if s.isupper() else "l" if s.islower() else " " for s in word)
        score = _AGAINST * len(_CASES_OF_NO_WORD.findall(cases))
        for before, sign, behind in zip(f" {word}", word, f"{word[1:]} ", strict=False):
            if sign.isascii():
                score += _ASCII
            elif sign in _SIGN_SHARES:
                score += math.log(_SIGN_SHARES[sign]) + _place_of(before, sign, behind)
            else:
                share = self.shares.get(sign) or self.shares.get(sign.lower())
                score += math.log(share) if share else _NO_TEXT + _AGAINST
                mixed = any(each.isascii() and each.isalpha() for each in (before, behind))
                score += _AGAINST * (mixed and not self.latin)
        alone = _ALONE / (3 if self.latin else 1)
        return score + alone * (len(word) == 1 and word.isalpha())


def _place_of(before: str, sign: str, behind: str) -> float:
    """Returns the logarithm for the place of a sign that is no letter, between two others."""
    if sign in _WITHIN_WORDS:
        return _SELDOM * (before.isalpha() and behind.islower())
    wrong = (before.isalpha() and sign not in _CLOSING) or (
        behind.isalpha() and sign not in _OPENING
    )
    return _AGAINST * wrong + _SELDOM * (before in _SIGN_SHARES)


@dataclass(frozen=True, slots=True, eq=False)
class _Characters:
    """A language with thousands of characters: the ``common`` ones, and those that ``level`` encodes by ``leads``."""

    common: str
    level: str
    leads: tuple[int, int]
    size: int
    kana: bool = False

    def word(self, word: str) -> float:
        """Returns the logarithm of a word's likelihood."""
        score = _AGAINST * len(_HALF_WIDTH_BY_LATIN.findall(word))
        return score + sum(_ASCII if s.isascii() else math.log(self._share(s)) for s in word)

    def _share(self, sign: str) -> float:
        if self.kana and "\u3041" <= sign <= "\u30fe":
            return _KANA_SHARE / _KANA
        rest = 1 - _KANA_SHARE * self.kana
        if sign in self.common:
            return rest * _COMMON / len(self.common)
        if "\u0391" <= sign <= "\u0451":
            return _OTHER_LETTERS / 130
        if "\uff10" <= sign <= "\uff19":
            return _FULL_WIDTH_DIGITS / 10
        if "\u3000" <= sign <= "\u3020" or "\uff01" <= sign <= "\uff9f":
            return _PUNCTUATION / 100
        try:
            data = sign.encode(self.level)
        except UnicodeEncodeError:
            data = b""
        of_level = len(data) == 2 and self.leads[0] <= data[0] <= self.leads[1]
        return rest * (_LEVEL / self.size if of_level else _ELSE / 7000)


def _alphabets(languages: tuple[str, ...], *, latin: bool = True) -> tuple[_Alphabet, ...]:
    family = "".join(languages)
    return tuple(_Alphabet.of(letters, family, latin=latin) for letters in languages)


_CALENDAR = frozenset(
    name.strip(".").lower()
    for of in NAMES.values()
    for names in of.values()
    for name in names
    if not name.isascii() and len(name) > 2
)
"""Names of months and days with letters beyond ASCII, which no other reading of their bytes is."""
_Language = _Alphabet | _Characters
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[_Language, ...], float], ...] = (
    (("cp1252",), _alphabets(_WESTERN), 0.0),
    (("cp1250",), _alphabets(_CENTRAL), 0.0),
    (("iso8859-2",), _alphabets(_CENTRAL), _REGIONAL),
    (("cp1251",), _alphabets(_CYRILLIC, latin=False), 0.0),
    (("cp1253", "iso8859-7"), _alphabets(_GREEK, latin=False), _REGIONAL),
    (("cp1255",), _alphabets(_HEBREW, latin=False), _REGIONAL),
    (("cp1256",), _alphabets(_ARABIC, latin=False), _REGIONAL),
    (("cp874",), _alphabets(_THAI, latin=False), _REGIONAL),
    (("cp1254",), _alphabets(_TURKISH), 0.0),
    (("cp1257",), _alphabets(_BALTIC), 0.0),
    (("cp932",), (_Characters(_JAPANESE, "euc_jp", (0xB0, 0xCF), 2965, kana=True),), _REGIONAL),
    (("gb18030",), (_Characters(_SIMPLIFIED, "gb2312", (0xB0, 0xD7), 3755),), _REGIONAL),
    (("big5",), (_Characters(_TRADITIONAL, "big5", (0xA4, 0xC6), 5401),), _REGIONAL),
    (("cp949",), (_Characters(_KOREAN, "euc_kr", (0xB0, 0xC8), 2350),), _REGIONAL),
    (("euc_jp",), (_Characters(_JAPANESE, "euc_jp", (0xB0, 0xCF), 2965, kana=True),), _REGIONAL),
    (("mac_roman", "cp850"), _alphabets(_WESTERN), _RARE),
    (("cp852", "mac_latin2"), _alphabets(_CENTRAL), _RARE),
    (("koi8-u", "cp866", "iso8859-5", "mac_cyrillic"), _alphabets(_CYRILLIC, latin=False), _RARE),
)
"""Encodings, the languages written in them, and their handicap; of those that read the same text the first is taken."""
