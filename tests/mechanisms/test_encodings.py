"""Encodings: a text is recognised in the one that it was written in, or asked for with it among the candidates."""

import random
import string
from collections import Counter
from pathlib import Path

import pytest

from mechanisms.dialect import Dialect
from mechanisms.draft import draft_domain
from mechanisms.encodings import UnclearEncoding, recognise_encoding, utf16_of
from mechanisms.errors import DataError
from mechanisms.reading import read_text
from mechanisms.sampling import public_generator
from mechanisms.source import TableSource
from mechanisms.table import decode, encode
from mechanisms.text_format import TextFormat
from mechanisms.writing import text_bytes

TEXTS = {
    "cp1252": (
        "Köln München Düsseldorf Gießen Lübeck Würzburg männlich grün für Straße Österreich Ärztin Übung süd später",
        "Genève Besançon Orléans Nîmes élève forêt hôpital français où août Noël cœur théâtre préféré décès âge",
        "España José Núñez Martínez López Málaga Cádiz Córdoba León año niño mañana corazón médico María pingüino",
        "São não Conceição João Gonçalves Araújo município saúde médico avó você três português óbito Évora funções",
        "Malmö Göteborg Västerås Jönköping Örebro Umeå män år ålder hälsa läkare",
        "København Århus Ærø Tromsø Bodø mænd køn år læge Sørensen Jørgensen Kjær Møller",
    ),
    "cp1250": (
        "Łódź Kraków Poznań Gdańsk Białystok Świnoujście Rzeszów mężczyzna województwo śląskie żona mąż święto źródło",
        "Plzeň Ústí České Budějovice Kroměříž Tábor Přerov Třebíč muž žena vyšší vzdělání střední věk číslo Růžena",
        "Győr férfi nő Székesfehérvár Pécs Szűcs Kőszeg település életkor egészség kórház időpont győző művész József",
        "Šiška Črnomelj Žalec moški ženska šola bolnišnica občina Škofja Čačak Đakovo Požega Kovačić",
        "Bucureşti Iaşi Timişoara Braşov Constanţa Galaţi bărbat vârstă judeţ sănătate încă câine şcoală ţară",
    ),
    "iso8859-2": (
        "Łódź Kraków Poznań Gdańsk Białystok Świnoujście Rzeszów mężczyzna województwo śląskie żona mąż święto źródło",
        "Plzeň Ústí České Budějovice Kroměříž Tábor Přerov Třebíč muž žena vyšší vzdělání střední věk číslo Růžena",
    ),
    "cp1251": (
        "Москва Казань Омск Пермь мужской женский возраст город доход образование высшее район больница Самара Уфа",
        "Київ Львів Одеса Харків Дніпро чоловік жінка вік місто область освіта вища лікарня Запоріжжя Чернігів",
        "София Пловдив Варна Бургас мъж жена възраст град болница образование висше средно област Русе",
    ),
    "koi8-r": ("Москва Казань Омск Пермь мужской женский возраст город доход образование высшее район Самара",),
    "cp1253": ("Αθήνα Θεσσαλονίκη Πάτρα Ηράκλειο άνδρας γυναίκα ηλικία πόλη νοσοκομείο εκπαίδευση Λάρισα Βόλος",),
    "cp1254": ("İstanbul Şanlıurfa Muğla Aydın Diyarbakır Eskişehir kadın yaş şehir öğrenci çalışıyor iş gücü Iğdır",),
    "cp1255": ("ירושלים חיפה אביב גבר אישה גיל עיר השכלה בית חולים רופא",),
    "cp1256": ("القاهرة دمشق بغداد الرياض ذكر أنثى العمر المدينة المستشفى الطبيب التعليم العالي",),
    "cp1257": ("Šiauliai Panevėžys Marijampolė Mažeikiai Kėdainiai amžius ligoninė gydytoja Ąžuolas Žemaitija",),
    "cp874": ("กรุงเทพ เชียงใหม่ ภูเก็ต ชาย หญิง อายุ จังหวัด โรงพยาบาล แพทย์ การศึกษา",),
    "cp932": ("東京 大阪 札幌 男 女 番号 性別 都市 年齢 はい いいえ 病院 医師 横浜 名古屋 アンケート 会社員 その他",),
    "euc_jp": ("東京 大阪 札幌 男 女 番号 性別 都市 年齢 はい いいえ 病院 医師 横浜 名古屋 アンケート 会社員 その他",),
    "gb18030": ("北京 上海 深圳 男 女 编号 性别 城市 年龄 医院 医生 广州 武汉 学生 职业 工人 农民 教师 未婚 其他",),
    "big5": ("臺北 高雄 台中 男 女 編號 性別 城市 年齡 醫院 醫師 臺南 新竹 學生 職業 工人 農民 教師 未婚 其他",),
    "cp949": ("서울 부산 대구 남 여 번호 성별 도시 나이 병원 의사 인천 광주 학생 직업 회사원 주부 기타 미혼 기혼",),
    "mac_roman": ("Köln München Düsseldorf Gießen Lübeck Würzburg männlich grün für Straße Größe Ärztin Übung",),
    "cp850": ("Köln München Düsseldorf Gießen Lübeck Würzburg männlich grün für Straße Größe Ärztin Übung",),
    "cp866": ("Москва Казань Омск Пермь мужской женский возраст город доход образование высшее район Самара",),
}  # fmt: skip
CASES = [(encoding, text) for encoding, texts in TEXTS.items() for text in texts]
NAMES = [f"{encoding}-{place}" for place, (encoding, _) in enumerate(CASES)]
DATED = ("mac_roman", "cp850", "cp866", "koi8-r")


def table_of(words: list[str]) -> str:
    return "id;word;n\n" + "".join(f"{i};{word};{3 * i % 7}\n" for i, word in enumerate(words))


def reading_of(content: bytes) -> str:
    """The text as it was recognised; "" if the encoding was asked for."""
    try:
        return content.decode(recognise_encoding(content))
    except UnclearEncoding:
        return ""


@pytest.mark.parametrize(("encoding", "text"), CASES, ids=NAMES)
def test_recognise_encoding_is_right_or_asks(encoding: str, text: str) -> None:
    rng, words = random.Random(1), text.split()
    found: Counter[tuple[int, str]] = Counter()
    for size in (1, 2, 3, 5, 8):
        for _ in range(12):
            table = table_of(rng.sample(words, size))
            if table.isascii():
                continue
            said = reading_of(table.encode(encoding))
            found[size, "asked" if not said else "right" if said == table else "wrong"] += 1
    wrong = {size for size, kind in found if kind == "wrong"}
    # Of few words in encodings of the past some are read in one of the present.
    assert wrong <= ({1, 2, 3} if encoding in DATED else set())
    assert reading_of(table_of(words).encode(encoding)) == table_of(words)


@pytest.mark.parametrize("text", ["süd", "100 °C", "100 €", "5 µg", "München;Köln"])
def test_recognise_encoding_takes_usual_signs_of_windows(text: str) -> None:
    assert recognise_encoding(table_of([text]).encode("cp1252")) == "cp1252"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a;Genève\n".encode("cp1252"), r"it may be cp1252 \(with è\) or cp1250 \(with č\); give it, as in --encoding"),
        ("No,sex\n1,男\n2,女\n".encode("gb18030"), r"it may be gb18030 \(with 男 女\) or "),
        ("пол\nм\nж\n".encode("cp1251"), r"it may be cp1251 .* or "),
        (bytes(range(128, 256)) * 2, r"its encoding is not recognised; give it, as in --encoding cp1252, or save"),
    ],
)  # fmt: skip
def test_recognise_encoding_asks_by_name(content: bytes, says: str) -> None:
    with pytest.raises(UnclearEncoding, match=says):
        recognise_encoding(content)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["id,город\n1,Москва\n", "番号,都市\n1,東京\n2,大阪\n", "a,b\n1,x\n"]
)
def test_utf16_of_knows_texts_without_a_mark(encoding: str, text: str) -> None:
    assert utf16_of((text * 9).encode(encoding)) == encoding
    assert utf16_of((text * 9).encode()) == ""
    assert utf16_of(("a,b\n1,\0\n" + text * 90).encode()) == ""


@pytest.mark.parametrize(
    ("encoding", "text"),
    [*CASES, ("utf-16-le", CASES[13][1]), ("utf-16-be", CASES[0][1]), ("utf-16", CASES[-5][1])],
    ids=[*NAMES, "utf-16-le", "utf-16-be", "utf-16"],
)
def test_a_synthetic_table_comes_back_in_the_encoding_of_its_draft(
    encoding: str, text: str, tmp_path: Path
) -> None:
    words = text.split()
    path = tmp_path / "t.csv"
    rows = [f"{words[i % len(words)]};{i % 90}" for i in range(40 * len(words))]
    content = f"word;age\n{chr(10).join(rows)}\n".encode(encoding)
    path.write_bytes(content)
    table, domain = read_text(path), draft_domain(path).domain
    assert set(domain.columns[0].values) == set(words)  # type: ignore[union-attr]
    codes = encode(domain, table)
    path.write_bytes(text_bytes(decode(domain, codes, public_generator(1)), domain))
    back = read_text(path)
    assert list(back.columns["word"]) == list(table.columns["word"])
    assert back.form == table.form
    # The same by name, for reading and for writing.
    told = TableSource(str(path), dialect=Dialect(encoding=encoding))
    assert list(read_text(told).columns) == ["word", "age"]
    assert TextFormat(";", encoding=encoding).cannot_write(words) is None


def test_read_text_names_the_file_whose_encoding_is_not_clear(tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    path.write_bytes("town;n\nGenève;1\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"towns\.csv: is not UTF-8, and its encoding is not clear"):
        read_text(path)
    told = TableSource(str(path), dialect=Dialect(encoding="cp1252"))
    assert read_text(told).columns["town"] == ("Genève",)


@pytest.mark.parametrize(
    "encoding", ["shift_jis", "cp932", "gbk", "gb2312", "euc_kr", "iso2022_jp"]
)
def test_encodings_by_name_hold_what_tables_are_made_of(encoding: str) -> None:
    assert TextFormat(encoding=encoding).cannot_write([string.printable]) is None
