"""The style sheets of a packed page: imports, referenced files, and references in the page itself."""

from pathlib import Path

import pytest

from tests.apps.packing import PIXEL, PIXEL_URL, body, pack_files, problems, write


def test_a_font_for_browsers_of_the_past_takes_no_room(tmp_path: Path) -> None:
    """Sheets of icon fonts list an EOT file first; it must exist, and is replaced by an empty one."""
    sheet = "@font-face { src: url('a.eot?v=4'); src: url('a.eot?#iefix') format('x'), url(a.woff) format('woff') }"
    text = body(pack_files(tmp_path, index__html=f"<style>{sheet}</style>", a__eot=b"old", a__woff=b"new"))
    assert text.count('url("data:application/vnd.ms-fontobject,")') == 2
    assert "data:font/woff;base64,bmV3" in text


def test_style_sheets_stand_in_the_page(tmp_path: Path) -> None:
    """Imports are inlined in place, files resolve relative to their sheet, strings and comments are untouched."""
    page = (
        '<link rel="stylesheet" href="css/a.css" media="screen"><p style="background: url(a.png)">'
        '<style>i { background: url( "a.png" ) }</style>'
    )
    sheet = '@import "b.css" print;\nb { background: URL(../a.png); content: "url(no.png)"; }/* url(no.png) </style> */'
    text = body(
        pack_files(
            tmp_path,
            index__html=page,
            css_of_a__css=sheet,
            css_of_b__css="@import url(/css/c.css);",
            css_of_c__css="@font-face { src: url('f.woff2') }",
            css_of_f__woff2=b"wOF2",
            a__png=PIXEL,
        )
    )
    assert text.startswith(
        '<style media="screen">@media print {\n@font-face { src: url("data:font/woff2;base64,d09GMg==") }\n}'
    )
    assert text.count(f'url("{PIXEL_URL}")') + text.count(f"url(&quot;{PIXEL_URL}&quot;)") == 3
    assert text.count("url(no.png)") == 2
    assert "<\\/style> */" in text


@pytest.mark.parametrize(
    ("sheet", "made"),
    [
        ("@import 'b.css'", "b{}"),
        ("@import url(b.css)\n", "b{}"),
        ('@import"b.css";i{}', "b{}i{}"),
        ("@import/**/ /* a */ 'b.css' print", "@media print {\nb{}\n}"),
        ("@import 'b.css' layer;", "@layer  {\nb{}\n}"),
        (
            "@import url(b.css) layer(a.b) supports(not (display: grid)) screen and (width > 1px);",
            "@layer a.b {\n@supports (not (display: grid)) {\n@media screen and (width > 1px) {\nb{}\n}\n}\n}",
        ),
        ("@import 'b.css'supports(color: rgb(calc(1), 2, 3))", "@supports (color: rgb(calc(1), 2, 3)) {\nb{}\n}"),
        ("@import 'b.css' LAYER(x)/* y */all;", "@layer x {\n@media all {\nb{}\n}\n}"),
        ("@namespace url(http://www.w3.org/1999/xhtml);i{}", "@namespace url(http://www.w3.org/1999/xhtml);i{}"),
        (
            "p{background:image-set('a.png' type('image/png') 1x, url(a.png) 2x)}",
            f'p{{background:image-set(url("{PIXEL_URL}") type(\'image/png\') 1x, url("{PIXEL_URL}") 2x)}}',
        ),
        ("p{background:-webkit-image-set('data:,x' 1x)}", "p{background:-webkit-image-set('data:,x' 1x)}"),
    ],
)
def test_what_a_sheet_names_in_other_ways(tmp_path: Path, sheet: str, made: str) -> None:
    """Imports as minifiers write them, an import at the end of the sheet, and image sets are packed."""
    folder = write(tmp_path, b__css="b{}", a__png=PIXEL)
    assert body(pack_files(folder, index__html=f"<style>{sheet}</style>")) == f"<style>{made}</style>"


def test_sheets_of_which_a_person_may_choose_keep_their_names(tmp_path: Path) -> None:
    """A browser applies those of the first title; an alternate sheet is only for its menu, and left out."""
    page = "<link rel=stylesheet href=b.css title=Main><link rel='alternate stylesheet' href=no.css title=Other>"
    resource = pack_files(tmp_path, index__html=page, b__css="b{}")
    assert body(resource) == "<style title=Main>b{}</style>"
    assert resource.notes[1:] == ("the alternate style sheet no.css is left out",)


def test_a_sheet_that_is_loaded_ahead_to_become_one_of_the_page_is_one(tmp_path: Path) -> None:
    """Many build tools write it so that the sheet does not block rendering."""
    page = """<link rel=preload href=b.css as=style onload="this.onload=null;this.rel='stylesheet'" id=a>"""
    page += "<link rel=preload href=b.css as=style>"
    assert body(pack_files(tmp_path, index__html=page, b__css="b{}")) == "<style id=a>b{}</style>"


ROUTE = "; if the backend has it, let the policy (`pack --policy`) allow GET of it"


@pytest.mark.parametrize(
    ("sheet", "place", "remedy"),
    [
        ("\n@import 'no.css'", "2:9: no.css", ""),
        ('@import"no.css"', "1:15: no.css", ""),
        ("p{background:image-set('no.png' 1x)}", "1:31: no.png", ROUTE),
        ("p{background:url(no.png)}", "1:25: no.png", ROUTE),
    ],
)
def test_what_is_missing_is_named_in_every_way(tmp_path: Path, sheet: str, place: str, remedy: str) -> None:
    """Line, column and the remedy (a route of the backend) are reported, except for sheets that a sheet imports."""
    [found] = problems(tmp_path, index__html=f"<style>{sheet}</style>")
    assert found == f"index.html:{place}: there is no such file in the app's folder{remedy}"


def test_all_that_is_wrong_in_sheets_is_named_once(tmp_path: Path) -> None:
    """A sheet that is imported twice, or linked by two elements, is reported once."""
    sheets = {
        "a__css": "p{background:url(x.png)}@import 'b.css';@import 'b.css';",
        "b__css": "\np{src:url(y.png)}q{src:url(z)}",
    }
    found = problems(tmp_path, index__html="<link rel=stylesheet href=a.css><link rel=stylesheet href=b.css>", **sheets)
    assert [each.split(" ")[:2] for each in found] == [
        ["a.css:1:18:", "x.png:"],
        ["b.css:2:11:", "y.png:"],
        ["b.css:2:28:", "z:"],
    ]
