"""Numbers are recognised by the words, signs and points that are written with them."""

import pytest

from mechanisms.recognising import LIKELY_TIMES, NumberReading, read_numbers

SCALES = {
    3: "k K thousand Tsd tsd Tsd. mil mila tys tis тыс тыс. 千 천",
    4: "万 萬 만",
    5: "lakh Lakh lac L",
    6: "M m mm MM Mn mn million mill Mill mln Mio mio Mio. млн millones milhões",
    7: "crore Crore Cr",
    8: "億 亿 억",
    9: "G b B bn Bn billion bln Mrd mrd Mrd. Md Mds mld млрд",
    12: "T t tn Tn trillion Bio 兆",
}
"""Words for powers of ten, in the languages in which tables write them."""


def read(*texts: str) -> NumberReading:
    found = read_numbers(dict.fromkeys(texts, 1))
    assert found is not None
    return found


def amounts(*words: str) -> list[str]:
    return [f"{tenths / 10:.1f} {word}".strip() for word in words for tenths in range(11, 90, 3)]


@pytest.mark.parametrize("power", SCALES)
def test_word_of_a_scale_is_its_power_of_ten(power: int) -> None:
    beside = "K" if power > 5 else "M"
    for word in SCALES[power].split():
        plain = read(*amounts(beside, word)).plain
        assert plain[f"1.1 {word}"] == str(11 * 10 ** (power - 1)), word


def test_mio_is_a_million_but_where_other_words_are_of_bytes() -> None:
    for words in (("", "Mio"), ("k", "Mio"), ("Tsd", "Mio")):
        assert read(*amounts(*words)).plain["1.1 Mio"] == "1100000"
    for words in (("Kio", "Mio"), ("o", "Kio", "Mio")):
        assert read(*amounts(*words)).plain["1.1 Mio"] == str(1.1 * 2**20)


def test_numbers_without_more_than_59_hundredths_are_times_of_day() -> None:
    times = [f"{minute // 60}.{minute % 60:02}" for minute in range(0, 24 * 60, 7)]
    assert read(*times).form == "%-H.%M"
    assert read(*times, "7.60").form != "%-H.%M"


def test_whole_numbers_that_may_be_times_of_day_are_asked_about_up_to_24_00() -> None:
    times = ["2400", *(f"{hour}59" for hour in range(1, LIKELY_TIMES))]
    assert "it may be times of day" in read(*times).question
    assert read(*times[1:]).question == read(*times[1:], "2460").question == ""


@pytest.mark.parametrize(
    ("numbers", "asked"),
    [
        ([1_545_004_800 + 86_400 * day for day in range(40)], "in seconds since 1970"),
        ([1000 * (1_545_004_800 + 86_400 * day) for day in range(40)], "in milliseconds since"),
        ([1_545_004_800 + 61 * day for day in range(40)], ""),
        ([1_545_004_860] * 40, ""),
        ([15_450_048 + 86_400 * day for day in range(40)], ""),
    ],
)
def test_whole_minutes_since_1970_are_asked_about(numbers: list[int], asked: str) -> None:
    question = read(*map(str, numbers)).question
    assert bool(question) == bool(asked)
    assert asked in question


def test_four_digits_are_times_of_day_where_they_are_neither_days_nor_months() -> None:
    def form(hours: int, minutes: int) -> str:
        pairs = [(h, m) for h in range(1, hours) for m in range(1, minutes)]
        found = read_numbers({f"{h:02}{m:02}": 1 for h, m in pairs})
        return "" if found is None else found.form

    assert form(24, 60) == "%H%M"
    assert "" == form(24, 32) == form(13, 60)
