"""Names of months and of days of the week, in the languages in which dates are read and written.

Public: all names. Source: Unicode CLDR, short and wide names beside a day. Limits: names of one spelling each; those of
days begin with Monday's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ENGLISH = "en"
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
}
_SHORT_MONTHS = {
    "en": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "de": "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez",
    "fr": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    "es": "ene feb mar abr may jun jul ago sep oct nov dic",
    "it": "gen feb mar apr mag giu lug ago set ott nov dic",
    "nl": "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "pt": "jan fev mar abr mai jun jul ago set out nov dez",
}
_DAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
}
_SHORT_DAYS = {
    "en": "Mon Tue Wed Thu Fri Sat Sun",
    "de": "Mo Di Mi Do Fr Sa So",
    "fr": "lun. mar. mer. jeu. ven. sam. dim.",
    "es": "lun mar mié jue vie sáb dom",
    "it": "lun mar mer gio ven sab dom",
    "nl": "ma di wo do vr za zo",
    "pt": "seg ter qua qui sex sáb dom",
}
NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        letter: {language: tuple(names.split()) for language, names in of.items()}
        for letter, of in (("B", _MONTHS), ("b", _SHORT_MONTHS), ("A", _DAYS), ("a", _SHORT_DAYS))
    }
)
"""Names by the directive of ``strftime`` that stands for them, and by language."""


def languages_of(word: str) -> tuple[str, ...]:
    """Returns the languages in which a word names a month or a day of the week."""
    found = word.lower()
    return tuple(
        language
        for language in _MONTHS
        if any(found == name.lower() for of in NAMES.values() for name in of[language])
    )
