"""Fonts of a picture: those that have the text, never the one that has boxes for everything, and what to install."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwise.view import fonts
from headwise.view.fonts import fonts_for, missing_font_warning

font_manager = pytest.importorskip("matplotlib.font_manager")

JAPANESE = "2038年11月12日です"
LATIN, KANJI, KANA = set(range(0x20, 0x530)), {ord(letter) for letter in "年月日"}, {ord(letter) for letter in "です"}
EVERYTHING = set(range(0x20, 0x30000))
Install = Callable[[dict[str, set[int]]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes these the fonts of the machine: names and the characters they have."""

    def make(installed: dict[str, set[int]], later: bool = False) -> None:
        entries = [SimpleNamespace(name=name, fname=name, style="normal", weight=400) for name in installed]
        manager = SimpleNamespace(ttflist=[] if later else entries)
        manager.addfont = lambda path: manager.ttflist.extend(entry for entry in entries if entry.fname == path)
        monkeypatch.setattr(font_manager, "fontManager", manager)
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: list(installed))
        monkeypatch.setattr(fonts, "_characters", lambda entry: installed[entry.name])

    return make


def test_matplotlibs_own_font_is_enough_for_europe() -> None:
    assert fonts_for(["Grüße", "Ёлка", "λόγος", "␣"]) == (["DejaVu Sans"], [])


def test_the_font_that_has_every_character_covers_none(install: Install) -> None:
    install({"DejaVu Sans": LATIN, "Last Resort High-Efficiency": EVERYTHING, "Last Resort": EVERYTHING})
    assert fonts_for([JAPANESE]) == (["DejaVu Sans"], list("すで年日月"))


def test_matplotlibs_last_resort_is_left_out_as_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [entry for entry in font_manager.fontManager.ttflist if "matplotlib" in entry.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert fonts_for([JAPANESE]) == (["DejaVu Sans"], list("すで年日月"))


def test_one_font_with_all_is_better_than_several_with_parts(install: Install) -> None:
    install({"DejaVu Sans": LATIN, "A Sans": KANJI, "B Sans": KANA, "Z": KANJI | KANA})
    assert fonts_for([JAPANESE]) == (["DejaVu Sans", "Z"], [])
    install({"DejaVu Sans": LATIN, "A Sans": KANJI, "B Sans": KANA})
    assert fonts_for([JAPANESE]) == (["DejaVu Sans", "A Sans", "B Sans"], [])


@pytest.mark.parametrize(("text", "name"), [("日です", "Han JP"), ("日", "Han SC"), ("日한", "Han KR")])
def test_chinese_characters_are_drawn_in_the_manner_of_the_text(install: Install, text: str, name: str) -> None:
    install({"DejaVu Sans": LATIN, **dict.fromkeys(["Han HK", "Han JP", "Han KR", "Han SC"], EVERYTHING)})
    assert fonts_for([text]).names == ["DejaVu Sans", name]


def test_a_font_installed_since_matplotlib_made_its_list_is_found(install: Callable[..., None]) -> None:
    install({"Fresh Sans": KANJI | KANA}, later=True)
    assert fonts_for([JAPANESE]) == (["DejaVu Sans", "Fresh Sans"], [])


def test_a_file_that_is_no_font_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bad.ttf").write_bytes(b"no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(tmp_path / "bad.ttf")])
    assert fonts_for(["\U0001faff", "\U00012000"]).names[0] == "DejaVu Sans"


@pytest.mark.parametrize(
    ("missing", "package"),
    [("年", "fonts-noto-cjk"), ("한", "fonts-noto-cjk"), ("ก", "fonts-noto-core"), ("🛸", "fonts-symbola")],
)
def test_the_package_to_install_is_named(missing: str, package: str) -> None:
    line = missing_font_warning([missing])
    assert f"no installed font has {missing}," in line
    assert package in line
    assert "\n" not in line


def test_a_long_list_is_cut() -> None:
    assert " and 88 more, " in missing_font_warning([chr(0x4E00 + n) for n in range(100)])
