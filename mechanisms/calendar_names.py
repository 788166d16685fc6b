"""Names of months and of days of the week, in the languages in which dates are read and written.

Public: all names. Source: Unicode CLDR, short and wide names beside a day; ``dx`` are German names as spreadsheets
write them (Mrz). Limits: names of one spelling each, but for dots at their ends; those of days begin with Monday's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ENGLISH = "en"
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "dx": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "sv": "januari februari mars april maj juni juli augusti september oktober november december",
    "da": "januar februar marts april maj juni juli august september oktober november december",
    "nb": "januar februar mars april mai juni juli august september oktober november desember",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
    "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "uk": "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
    "ja": "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
}
_SHORT_MONTHS = {
    "en": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "de": "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez",
    "dx": "Jan Feb Mrz Apr Mai Jun Jul Aug Sep Okt Nov Dez",
    "fr": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    "es": "ene feb mar abr may jun jul ago sep oct nov dic",
    "it": "gen feb mar apr mag giu lug ago set ott nov dic",
    "nl": "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "pt": "jan fev mar abr mai jun jul ago set out nov dez",
    "sv": "jan feb mar apr maj jun jul aug sep okt nov dec",
    "da": "jan. feb. mar. apr. maj jun. jul. aug. sep. okt. nov. dec.",
    "nb": "jan feb mar apr mai jun jul aug sep okt nov des",
    "pl": "sty lut mar kwi maj cze lip sie wrz paź lis gru",
    "cs": "led úno bře dub kvě čvn čvc srp zář říj lis pro",
    "tr": "Oca Şub Mar Nis May Haz Tem Ağu Eyl Eki Kas Ara",
    "ru": "янв. февр. мар. апр. мая июн. июл. авг. сент. окт. нояб. дек.",
    "uk": "січ. лют. бер. квіт. трав. черв. лип. серп. вер. жовт. лист. груд.",
    "ja": "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
}
_DAYS = {
    "en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "de": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "dx": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "fr": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "es": "lunes martes miércoles jueves viernes sábado domingo",
    "it": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "nl": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "pt": "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    "sv": "måndag tisdag onsdag torsdag fredag lördag söndag",
    "da": "mandag tirsdag onsdag torsdag fredag lørdag søndag",
    "nb": "mandag tirsdag onsdag torsdag fredag lørdag søndag",
    "pl": "poniedziałek wtorek środa czwartek piątek sobota niedziela",
    "cs": "pondělí úterý středa čtvrtek pátek sobota neděle",
    "tr": "Pazartesi Salı Çarşamba Perşembe Cuma Cumartesi Pazar",
    "ru": "понедельник вторник среда четверг пятница суббота воскресенье",
    "uk": "понеділок вівторок середа четвер пʼятниця субота неділя",
    "ja": "月曜日 火曜日 水曜日 木曜日 金曜日 土曜日 日曜日",
}
_SHORT_DAYS = {
    "en": "Mon Tue Wed Thu Fri Sat Sun",
    "de": "Mo Di Mi Do Fr Sa So",
    "dx": "Mo Di Mi Do Fr Sa So",
    "fr": "lun. mar. mer. jeu. ven. sam. dim.",
    "es": "lun mar mié jue vie sáb dom",
    "it": "lun mar mer gio ven sab dom",
    "nl": "ma di wo do vr za zo",
    "pt": "seg ter qua qui sex sáb dom",
    "sv": "mån tis ons tors fre lör sön",
    "da": "man. tirs. ons. tors. fre. lør. søn.",
    "nb": "man. tir. ons. tor. fre. lør. søn.",
    "pl": "pon. wt. śr. czw. pt. sob. niedz.",
    "cs": "po út st čt pá so ne",
    "tr": "Pzt Sal Çar Per Cum Cmt Paz",
    "ru": "пн вт ср чт пт сб вс",
    "uk": "пн вт ср чт пт сб нд",
    "ja": "月 火 水 木 金 土 日",
}
NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        letter: {language: tuple(names.split()) for language, names in of.items()}
        for letter, of in (("B", _MONTHS), ("b", _SHORT_MONTHS), ("A", _DAYS), ("a", _SHORT_DAYS))
    }
)
"""Names by the directive of ``strftime`` that stands for them, and by language."""


def languages_of(word: str) -> tuple[str, ...]:
    """Returns the languages in which a word names a month or a day of the week, with or without a dot at its end."""
    found = word.lower().removesuffix(".")
    return tuple(
        language
        for language in _MONTHS
        if any(
            found == name.lower().removesuffix(".")
            for of in NAMES.values()
            for name in of[language]
        )
    )


def names_of(letter: str, language: str, *, dots: bool = True) -> tuple[str, ...]:
    """Returns the names that a directive stands for, without ``dots`` those of short names."""
    names = NAMES[letter][language]
    return names if dots else tuple(name.removesuffix(".") for name in names)
