"""What a browser would pass over stops no packing, and what a policy opens stays in the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.apps import PARTS, pack
from gateway.doors.sandbox import content_policy
from gateway.policy import parse_policy
from tests.apps.packing import RUNTIME, body, pack_files, problems, write

DIGEST = "sha384-" + "A" * 64
POLICY = f"""
version: 1
external:
  fonts: [https://fonts.example]
  images: [https://pictures.example]
  styles: [https://styles.example]
  scripts: [{{url: "https://cdn.example/x.js", integrity: {DIGEST}}}]
  connect: [https://api.example]
"""


def test_a_script_of_another_site_fails_alone(tmp_path: Path) -> None:
    """It names nothing that a browser would load, and the scripts beside it are packed."""
    page = "<script src=https://cdn.example/x.js integrity=sha256-x onerror=f()></script><script src=a.js></script>"
    made = pack_files(tmp_path, index__html=page, a__js="a()")
    assert body(made) == (
        '<script onerror=f() src="about:invalid#https://cdn.example/x.js"></script><script>a()</script>'
    )
    [warning] = made.warnings
    assert (warning.line, warning.column) == (1, 9)
    assert all(way in warning.message for way in ("`external`", "`pack --vendor`", "save it in the app's folder"))


def test_what_the_policy_opens_stays_in_the_page(tmp_path: Path) -> None:
    """Each kind alone; a script gets the digest of the policy, whatever the page says."""
    page = (
        "<link rel=stylesheet href=https://styles.example/a.css><img src=//pictures.example/p.png>"
        "<style>@import 'b.css'; p { color: red }</style><img src=https://styles.example/p.png>"
        "<script defer src=https://cdn.example/x.js integrity=sha256-other></script>"
        "<script src=https://cdn.example/y.js></script>"
    )
    sheet = "@import url(https://styles.example/c.css) print; @font-face { src: url(https://fonts.example/f.woff2) }"
    folder = write(tmp_path, index__html=page, b__css=sheet)
    policy = parse_policy(POLICY, "p.yaml")
    parts = {word: [f"/*{name}*/" for name in names] for word, names in PARTS.items()}
    made = pack(folder, app="cart", title="", runtime=RUNTIME, parts=parts, external=policy.external)
    assert "<link rel=stylesheet href=https://styles.example/a.css><img src=//pictures.example/p.png>" in made.html
    assert f'<script defer src=https://cdn.example/x.js integrity="{DIGEST}" crossorigin="anonymous">' in made.html
    assert '<style>@import url("https://styles.example/c.css") print;' in made.html
    assert "src: url(https://fonts.example/f.woff2)" in made.html
    assert "/*external/external.js*/;console.log" in made.html
    assert [warning.message.split(" ")[0] for warning in made.warnings] == [
        "https://styles.example/p.png",
        "https://cdn.example/y.js",
    ]
    assert made.meta["csp"] == {
        "connectDomains": ["https://api.example", "wss://api.example"],
        "resourceDomains": [
            *("https://fonts.example", "https://pictures.example", "https://styles.example", "https://cdn.example")
        ],
    }
    rules = content_policy(made.meta["csp"], "https://host.example", external=made.external).split("; ")
    assert "script-src 'self' 'unsafe-inline' 'report-sample' https://cdn.example/x.js" in rules
    assert "style-src 'self' 'unsafe-inline' https://styles.example" in rules
    assert "img-src 'self' data: blob: https://pictures.example" in rules
    assert "font-src data: https://fonts.example" in rules
    assert "connect-src https://api.example wss://api.example" in rules


def test_a_file_that_is_there_without_the_start_of_its_path_names_the_start(tmp_path: Path) -> None:
    """As in a build for a path that is not the root."""
    [found] = problems(tmp_path, index__html="<img src=/my/app/a.png>", a__png=b"x")
    assert found.endswith("but there is a.png: set `start: /my/app/` at the app if it lives there")


def test_frames_of_others_show_nothing_and_own_ones_are_loaded_by_the_runtime(tmp_path: Path) -> None:
    """No host loads what the policy does not name."""
    page = '<iframe src="index.html"></iframe><iframe src="https://x.example/"></iframe><object data="a.swf">x</object>'
    page += '<object data="a.svg#x">x</object><embed src="index.html"><embed type="application/pdf" src="b">'
    made = pack_files(tmp_path, index__html=page, a__svg="<svg/>")
    assert body(made) == (
        '<iframe webmcp-gateway-src="index.html"></iframe><iframe data-left-out="https://x.example/"></iframe>'
        '<object data-left-out="a.swf">x</object>'
        '<object webmcp-gateway-data="data:image/svg+xml;base64,PHN2Zy8+#x">x</object>'
        '<embed webmcp-gateway-src="index.html"><embed type="application/pdf" data-left-out="b">'
    )
    assert len(made.warnings) == 3


def test_a_base_of_another_site_counts_as_its_path(tmp_path: Path) -> None:
    """The files of the folder are found below it."""
    made = pack_files(
        tmp_path, index__html="<base href=https://shop.example/shop/><script src=a.js></script>", a__js="a()"
    )
    assert "&quot;base&quot;: &quot;/shop/&quot;" in made.html
    assert "<script>a()</script>" in made.html


@pytest.mark.parametrize(
    "base", [" https://x.example/shop/", "/\t/x.example/shop/", "\\\\x.example\\shop/", "h\nttp://x.example//shop/"]
)
def test_blanks_and_backslashes_hide_no_base_of_another_site(tmp_path: Path, base: str) -> None:
    """URL parsers of browsers remove these blanks, and take a backslash for a slash."""
    made = pack_files(tmp_path, index__html=f"<base href='{base}'><script src=a.js></script>", a__js="a()")
    assert "&quot;base&quot;: &quot;/shop/&quot;" in made.html
    assert "x.example" not in made.html
    assert "<script>a()</script>" in made.html


def test_a_page_of_20_mb_with_5000_scripts_is_packed(tmp_path: Path) -> None:
    """So are scripts of which each is missing: every warning has its place."""
    scripts = "".join(f"<script>let a{n} = '{'x' * 4000}'</script>\n<script src=s{n}.js></script>" for n in range(2500))
    modules = "<script type=module src=m.js></script>" * 100 + "<meta http-equiv=refresh content=0>"
    made = pack_files(tmp_path, index__html=f"{scripts}{modules}<p>{'y' * 10_000_000}", m__js="m()")
    assert len(made.html) > 20_000_000
    assert [warning.line for warning in made.warnings] == [*range(2, 2502)]
    assert made.html.count("m()") == 1
    assert any("too large for the console" in note for note in made.notes)


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """A folder in the place of a file, and a picture of an unknown kind, are asked for when the page runs."""
    (tmp_path / "a.js").mkdir()
    made = pack_files(tmp_path, index__html="<script src=a.js></script><img src=a.xyz><script>b()</script>", a__xyz="x")
    assert [warning.column for warning in made.warnings] == [9, 32]
    assert "<script>b()</script>" in made.html
    assert '<img src="/a.xyz" srcset=' in made.html
