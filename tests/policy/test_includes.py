"""Policies of several files: what each part adds, where its rules are written, and what cannot be included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.errors import DocumentError
from gateway.model import Caller, Door, Initiator, Principal, Request
from gateway.policy import Policy, decide_tool, explain, load_policy, run_tests
from gateway.policy.includes import DEEPEST
from gateway.policy.load import check_part, is_part

MAIN = """version: 1
include: [shared/admin.yaml, shared/limits.yaml]
backends: {shop: {url: "https://shop.example"}}
limits: {timeout: 3s}
responses: {mask: ["$.mine"]}
routes:
  - {path: /api/cart, methods: [GET]}
tools: {add: {}}
"""
ADMIN = """routes:
  - {path: "/api/admin/**", deny: "The admin API is not for apps"}
  - {path: "/api/**", methods: [POST], body: {schema: any.json}}
tools: {clear: {deny: "never"}}
tests:
  - {request: GET /api/admin/x, expect: deny}
"""
LIMITS = """version: 1
limits: {timeout: 20s, response: 1MiB, rate: 5/minute per principal}
responses: {mask: ["$..card"], headers: [etag]}
links: {allow: ["https://shop.example/**"]}
frames: ["https://maps.example"]
"""
CALLER = Caller(Principal("i", "c", "s"), "shop", Door.BRIDGE, Initiator.PAGE, "test", "v", True)


def write_policy(folder: Path, **files: str) -> Path:
    """Write the usual files, or others, and return the policy; `__` in a name is a folder."""
    named = {"shop": MAIN, "shared__admin": ADMIN, "shared__limits": LIMITS, **files}
    for name, text in named.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    (folder / "shared" / "any.json").write_text('{"type": "object"}', "utf-8")
    return folder / "shop.yaml"


def refusal(folder: Path, **files: str) -> list[str]:
    """Return the problems of these files, with paths relative to the folder."""
    with pytest.raises(DocumentError) as refused:
        load_policy(write_policy(folder, **files))
    return [str(problem).replace(f"{folder}/", "") for problem in refused.value.problems]


def test_a_policy_has_what_its_parts_have(tmp_path: Path) -> None:
    """Its own routes come first, its own limits are nearest; masks and links of all files add up."""
    policy = load_policy(write_policy(tmp_path))
    assert [route.template.text for route in policy.routes.all] == ["/api/cart", "/api/admin/**", "/api/**"]
    assert set(policy.tools) == {"add", "clear"}
    cart = policy.routes.all[0].decision.obligations
    assert (cart.timeout, cart.response_limit, len(cart.limits)) == (3.0, 2**20, 1)
    assert [path.text for path in cart.mask] == ["$.mine", "$..card"]
    assert cart.response_headers == {"etag"}
    assert policy.links.find("https://shop.example/x") is not None
    assert policy.frames == ("https://maps.example",)
    assert [Path(source).name for source in policy.sources] == ["shop.yaml", "admin.yaml", "limits.yaml", "any.json"]
    assert [result.passed for result in run_tests(policy)] == [True]


def test_each_rule_says_where_it_is_written(tmp_path: Path) -> None:
    """In reasons and explanations: the part and the line; in the policy's own file, the line alone."""
    policy = load_policy(write_policy(tmp_path))
    place = f"{tmp_path}/shared/admin.yaml, line 2"
    found = explain(policy, Request("GET", "/api/admin/x"), CALLER)
    assert f"({place})" in found.reasons[1]
    assert found.remedy is not None
    assert place in found.remedy
    assert [tried.place for tried in found.candidates] == [place]
    assert "(line 7)" in explain(policy, Request("GET", "/api/cart"), CALLER).reasons[0]
    assert f"({tmp_path}/shared/admin.yaml, line 4)" in decide_tool(policy, "clear", CALLER).reasons[1]


def test_a_changed_part_is_another_version(tmp_path: Path) -> None:
    """Also if the policy's own file stays the same."""
    before = load_policy(write_policy(tmp_path)).version
    assert load_policy(write_policy(tmp_path, shared__limits=LIMITS.replace("20s", "21s"))).version != before


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"shop": "version: 1\ninclude: [gone.yaml]\n"}, 'shop.yaml:2:11: include: "gone.yaml" cannot be read'),
        ({"shop": "version: 1\ninclude: gone.yaml\n"}, "shop.yaml:2:10: include: must be a list of files"),
        ({"shop": "version: 1\ninclude: [3]\n"}, "shop.yaml:2:11: include: must be the name of a file"),
        ({"shop": "version: 1\ninclude: [/etc/passwd]\n"}, "must be a path relative to this file"),
        ({"shop": "version: 1\ninclude: [../../x.yaml]\n"}, "outside of the folder of the configuration"),
        ({"shop": "version: 1\ninclude: [shared]\n"}, 'include: "shared" cannot be read'),
        ({"shop": "version: 1\ninclude: [shop.yaml]\n"}, '"shop.yaml" includes itself: shop.yaml → shop.yaml'),
        (
            {"shared__admin": "include: [limits.yaml]\n", "shared__limits": "include: [admin.yaml]\n"},
            'shared/limits.yaml:1:11: include: "admin.yaml" includes itself: '
            "shared/admin.yaml → shared/limits.yaml → shared/admin.yaml",
        ),
        ({"shared__limits": "mode: {report: {until: 2030-01-01}}\n"}, 'shared/limits.yaml:1:1: "mode" belongs in'),
        ({"shared__limits": "tools: {add: {}}\n"}, 'tools: "add" is defined in shop.yaml, line 8, too'),
        ({"shared__limits": "limit: {}\n"}, 'shared/limits.yaml:1:1: unknown key "limit", did you mean "limits"?'),
        ({"shared__limits": "limits: {timeot: 1s}\n"}, 'shared/limits.yaml:1:10: unknown key "timeot"'),
        ({"shared__limits": "limits: 3\n"}, "shared/limits.yaml:1:9: limits: must be a mapping"),
        ({"shared__limits": "version: 2\n"}, "shared/limits.yaml:1:10: version: must be the number 1"),
        ({"shared__limits": "- a\n"}, "shared/limits.yaml:1:1: must be a mapping, not a list"),
        ({"shared__limits": "a: [\n"}, "shared/limits.yaml:2:1: not YAML"),
        ({"shared__admin": ADMIN.replace("any.json", "no.json")}, "shared/admin.yaml:3"),
        ({"shared__admin": ADMIN.replace("methods: [POST]", "methods: [GIT]")}, "shared/admin.yaml:3"),
    ],
)
def test_what_cannot_be_included_is_refused(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    """With the file and the line that names it, or that is wrong in it."""
    assert any(problem in one for one in refusal(tmp_path, **files)), refusal(tmp_path, **files)


def test_parts_may_include_parts_up_to_a_depth(tmp_path: Path) -> None:
    """A chain of parts is bounded, and names the line at which it becomes too long."""
    chain = {f"shared__p{n}": f"include: [p{n + 1}.yaml]\n" for n in range(DEEPEST + 1)}
    files = {**chain, f"shared__p{DEEPEST + 1}": "frames: []\n", "shop": "version: 1\ninclude: [shared/p0.yaml]\n"}
    [problem] = refusal(tmp_path, **files)
    assert problem.startswith(f"shared/p{DEEPEST - 1}.yaml:1:11: include: ")
    assert "more than 8 files" in problem


def test_a_link_to_the_outside_is_not_followed(tmp_path: Path) -> None:
    """The name makes no difference: the file that would be read is outside. A link within the folder is."""
    (tmp_path / "outside.yaml").write_text("frames: []\n", "utf-8")
    folder = tmp_path / "in"
    folder.mkdir()
    path = write_policy(folder)
    (folder / "shared" / "limits.yaml").unlink()
    os.symlink(tmp_path / "outside.yaml", folder / "shared" / "limits.yaml")
    with pytest.raises(DocumentError, match="links to the outside"):
        load_policy(path)
    (folder / "shared" / "limits.yaml").unlink()
    (folder / "real.yaml").write_text(LIMITS, "utf-8")
    os.symlink(folder / "real.yaml", folder / "shared" / "limits.yaml")
    assert load_policy(path).frames == ("https://maps.example",)
    (tmp_path / "gateway.yaml").write_text("", "utf-8")  # the folder of the configuration is the one above
    (folder / "shared" / "limits.yaml").unlink()
    os.symlink(tmp_path / "outside.yaml", folder / "shared" / "limits.yaml")
    assert load_policy(path).frames == ()


def test_a_part_twice_is_there_once(tmp_path: Path) -> None:
    """A part that two others need."""
    files = {"shared__admin": f"include: [limits.yaml]\n{ADMIN}"}
    policy: Policy = load_policy(write_policy(tmp_path, **files))
    assert policy.frames == ("https://maps.example",)


def test_a_part_is_checked_alone(tmp_path: Path) -> None:
    """Its rules are parsed as in a policy with a backend; lines are its own."""
    write_policy(tmp_path)
    part = tmp_path / "shared" / "admin.yaml"
    assert (is_part(part), is_part(tmp_path / "shop.yaml")) == (True, False)
    assert len(check_part(part).routes.all) == 2
    part.write_text(ADMIN.replace("/api/**", "api"), "utf-8")
    with pytest.raises(DocumentError) as refused:
        check_part(part)
    assert refused.value.problems[0].line == 3
