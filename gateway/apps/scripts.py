"""Tokenizes JavaScript as far as needed to find imports, and to escape it for a `<script>` element."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from gateway.apps.exact_text import ends_there, regular_expression, template_call
from gateway.apps.files import Splice, Text, splice
from gateway.errors import Problem
from gateway.jsontext.writing import plain_json


def matches(text: str, pattern: re.Pattern[str], *words: str) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern`, which must begin with one of `words`, word by word."""
    for word in words:
        at = text.find(word)
        while at >= 0:
            if match := pattern.match(text, at):
                yield match
            at = text.find(word, at + 1)


def match_of(text: str, pattern: re.Pattern[str], word: str) -> re.Match[str] | None:
    """Return the first match."""
    return next(matches(text, pattern, word), None)


_BEFORE_EXPRESSION = frozenset(
    (
        "await",
        "case",
        "delete",
        "do",
        "else",
        "in",
        "instanceof",
        "new",
        "of",
        "return",
        "throw",
        "typeof",
        "void",
        "yield",
    )
)
"""Words after which a slash begins a regular expression (ECMA-262, 12.9.5)."""

_TOKEN = re.compile(
    r"""\s*+(?:(//[^\n\r\u2028\u2029]*|/\*.*?\*/)
    |("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |((?:[\w$#\u0080-\U0010ffff]|\\u\{?[0-9a-fA-F]+\}?)+)
    |([/`(){}\[\]])
    |(\S))""",
    re.DOTALL | re.VERBOSE,
)
"""A comment, a string, a word, a mark that may change the lexical context, or any other character."""
_READ_SO: Final = 4
_REGEX = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/[\w$]*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)?", re.DOTALL)
_DANGEROUS = re.compile(r"<(?=/?script|!--)", re.IGNORECASE)


class TokenKind(Enum):
    """The kind of a token, as far as packing needs it."""

    COMMENT = auto()
    LITERAL = auto()
    WORD = auto()
    MARK = auto()


_KINDS: Final = (TokenKind.MARK, TokenKind.COMMENT, TokenKind.LITERAL, TokenKind.WORD, TokenKind.MARK, TokenKind.MARK)
"""By the groups of `_TOKEN`."""


class ScriptToken(NamedTuple):
    """One token from `start` to `end`, without white space."""

    kind: TokenKind
    start: int
    end: int
    text: str


def _match(pattern: re.Pattern[str], code: str, at: int) -> re.Match[str]:
    """Match a pattern that matches any input."""
    match = pattern.match(code, at)
    if match is None:
        raise ValueError(f"{pattern.pattern} does not match at {at}")
    return match


def tokens(code: str) -> Iterator[ScriptToken]:
    """Yield the tokens of `code`. Text inside of template literals is a literal, their expressions are tokens."""
    at = 0
    nesting: list[str] = []
    previous: ScriptToken | None = None
    expression_follows = False  # whether the last ")" closed the head of an if, for, while or with
    while (match := _TOKEN.match(code, at)) is not None:
        group = match.lastindex or 0
        kind = _KINDS[group]
        start, at = match.span(group)
        text = match[group]
        if group == _READ_SO:
            if text == "/":
                if _expects_expression(previous, expression_follows) and (regex := _REGEX.match(code, start)):
                    kind, at = TokenKind.LITERAL, regex.end()
            elif text == "`" or (text == "}" and nesting and nesting[-1] == "`"):
                if text == "}":
                    nesting.pop()
                template = _match(_TEMPLATE, code, at)
                kind, at = TokenKind.LITERAL, template.end()
                if template[1] == "${":
                    nesting.append("`")
            elif text in "({[":
                head = previous is not None and previous.text in ("if", "for", "while", "with")
                nesting.append("head" if text == "(" and head else text)
            else:
                expression_follows = bool(nesting) and nesting.pop() == "head"
            text = code[start:at]
        token = ScriptToken(kind, start, at, text)
        yield token
        if kind is not TokenKind.COMMENT:
            previous = token


def _expects_expression(previous: ScriptToken | None, after_head: bool) -> bool:
    """Return whether a slash here begins a regular expression rather than divides."""
    if previous is None:
        return True
    if previous.kind is TokenKind.WORD:
        return previous.text in _BEFORE_EXPRESSION
    if previous.kind is TokenKind.LITERAL:
        return previous.text.endswith("${")
    return after_head if previous.text == ")" else previous.text != "]"


_BLOCKED = {
    ("new", re.compile(r"\bnew\s+(?:Shared)?Worker\s*\(")): (
        "starts a worker, which most hosts block; the gateway's own does not"
    ),
    ("WebAssembly", re.compile(r"\bWebAssembly\s*\.\s*(?:compile|instantiate|Module)")): (
        "compiles WebAssembly, which most hosts block; the gateway's own does not"
    ),
}
"""Features that hosts block, by the first word of their use and its pattern."""
_LATE = {
    ("import", re.compile(r"(?<![\w$.])import\s*\(\s*(?:/\*.*?\*/\s*)?(?![\s\"'`/)])", re.DOTALL)): (
        "imports a module whose name is only known at run time, which fails for a file: a packed page is a single file"
    ),
}
"""The same, unless the page lists files for that."""
_LEAVING = {
    ("location", re.compile(r"""\blocation\s*(?:(?:\.\s*href\s*)?=|\.\s*(?:assign|replace)\s*\()\s*["'`]#""")): (
        "goes to a fragment by an address, which leads out of a view: set location.hash"
    ),
}
"""The same if scripts use the frame's own `location`."""
_MAY_IMPORT = re.compile(
    r"""(?<!["'`.])\bimport(?=\s*[(/])
    |(?<!["'`.-])\bimport(?=\s*["'{*]|\s+[\w$\\\u0080-\U0010ffff]+\s*(?:[,*/]|from\b|[\w$]+\s+from\b))
    |(?<!["'`.-])\bfrom(?=\s*["'/])|\bnew(?=\s*/|\s+(?:Shared)?Worker\b)""",
    re.VERBOSE,
)
"""Code without a match contains no import and starts no worker."""
_SAYING_SO = frozenset({"import", "from", "Worker", "SharedWorker"})
"""The same for words."""
_NAMED_FILE = re.compile(r"""["'`](?!data:|blob:)[^$]*\Z""")
_MAKES_SCRIPTS = re.compile(r"""createElement(?:NS)?\s*\([^()]*["'`]script["'`]""", re.IGNORECASE)
_MAKES_FRAMES = re.compile(r"""createElement\s*\(\s*["'`]iframe["'`]|<iframe\b""", re.IGNORECASE)
_NEEDS_ORIGIN = {
    (word, re.compile(rf"\b{pattern}")): (
        "looks into a frame that it makes, which a page without an origin cannot: set `sandbox: dedicated` for the app"
    )
    for word, pattern in (
        ("contentDocument", "contentDocument"),
        ("contentWindow", r"contentWindow\s*\??\.\s*document"),
    )
}
"""Uses that need an origin of their own, in scripts that make frames."""
WORKER_FILE = (
    "starts a worker of another file, which the page fetches for it; most hosts block workers but the gateway's own, "
    "so let the page go on without"
)
_REMEDY = 'write <script type="module">, or build the app with a bundler and pack what that wrote'


Statement = list[ScriptToken]


def find_imports(code: str) -> list[Statement]:
    """Return the statements of `code`, without comments, that may import something or start a worker."""
    return [
        statement for statement in _statements(code) if not _SAYING_SO.isdisjoint(token.text for token in statement)
    ]


def _statements(code: str) -> Iterator[Statement]:
    """Yield statements from semicolon to semicolon, up to the last that may import."""
    last = max((match.start() for match in matches(code, _MAY_IMPORT, "import", "from", "new")), default=-1)
    statement: Statement = []
    for token in tokens(code) if last >= 0 else ():
        if token.kind is not TokenKind.COMMENT:
            statement.append(token)
        if token.text == ";":
            yield statement
            if token.start > last:
                return
            statement = []
    yield statement


def named_imports(statements: Iterable[Statement]) -> list[tuple[ScriptToken, ScriptToken]]:
    """Return each `import()` with a literal name: its word, and the name."""
    return [
        (token, statement[index + 2])
        for statement in statements
        for index, token in enumerate(statement)
        if _is_named_import(statement, index, token)
    ]


def _is_named_import(statement: list[ScriptToken], index: int, token: ScriptToken) -> bool:
    words = [one.text for one in statement[index + 1 : index + 4]] if token.text == "import" else []
    if words[:1] != ["("] or words[2:] not in ([")"], [","]):
        return False
    return words[1][-1] in "\"'`" and not _is_property(statement, index)


def late_imports(statements: Iterable[Statement]) -> list[ScriptToken]:
    """Return the word of each `import()` whose name is known only at run time."""
    return [
        token
        for statement in statements
        for index, token in enumerate(statement)
        if _is_late_import(statement, index, token)
    ]


def _is_late_import(statement: list[ScriptToken], index: int, token: ScriptToken) -> bool:
    if (
        token.text != "import"
        or _is_property(statement, index)
        or [one.text for one in statement[index + 1 : index + 2]] != ["("]
    ):
        return False
    depth = 0
    for at in range(index + 1, len(statement)):
        depth += {"(": 1, ")": -1}.get(statement[at].text, 0)
        if depth == 0:  # `import(name) { … }` defines a method of that name
            is_method = [one.text for one in statement[at + 1 : at + 2]] == ["{"]
            return at > index + 2 and not is_method and not _is_named_import(statement, index, statement[index])
    return False


def _is_property(statement: list[ScriptToken], index: int) -> bool:
    return index > 0 and statement[index - 1].text in (".", "?.")


def import_problems(text: Text, statements: Iterable[Statement], *, linked: Collection[int] = ()) -> list[Problem]:
    """Return each import of another file, or worker from one: one HTML file has no other to load.

    `linked` are the positions of imports that the packer has resolved.
    """
    return [
        text.problem(token.start, message)
        for statement in statements
        for index, token in enumerate(statement[:-1])
        if token.text in ("new", "import", "from") and not _is_property(statement, index) and token.start not in linked
        if (message := _import_problem(statement, index)) is not None
    ]


def _import_problem(statement: list[ScriptToken], index: int) -> str | None:
    before = statement[index - 1].text if index else ""
    match statement[index].text:
        case "new" if _is_worker_file([one.text for one in statement[index + 1 : index + 8]]):
            return WORKER_FILE
        case "import" if _is_import(statement, index):
            return f"imports another file, which a packed app cannot: {_REMEDY}"
        case "from" if before in ("}", "*") and _is_string(statement[index + 1]) and _exports(statement, index):
            return f"exports from another file, which a packed app cannot: {_REMEDY}"
    return None


def _is_worker_file(words: list[str]) -> bool:
    """Return whether these words follow `new` in the creation of a worker from a named file."""
    if words[:1] not in (["Worker"], ["SharedWorker"]):
        return False
    subject = words[5:7] if words[2:5] == ["new", "URL", "("] else words[2:4]
    return words[1:2] == ["("] and subject[1:] in ([")"], [","]) and _NAMED_FILE.match(subject[0]) is not None


def adds_modules(code: str) -> bool:
    """Return whether `code` may add module scripts to the page."""
    return any(f"{quote}module{quote}" in code for quote in "\"'`") and _MAKES_SCRIPTS.search(code) is not None


def blocked_problems(text: Text, code: str, *, asking: bool, finding: bool, dedicated: bool) -> list[Problem]:
    """Return the first use in `code` of each feature that hosts block; many libraries work without.

    `asking`: it calls the runtime for `location`; `finding`: it finds the files that the page lists; `dedicated`: it
    has an origin of its own.
    """
    patterns = _BLOCKED | ({} if finding else _LATE) | ({} if asking else _LEAVING)
    if not dedicated and _MAKES_FRAMES.search(code):
        patterns |= _NEEDS_ORIGIN
    matches = [(match_of(code, pattern, word), words) for (word, pattern), words in patterns.items()]
    return [text.problem(match.start(), words) for match, words in matches if match is not None]


def _is_import(statement: list[ScriptToken], index: int) -> bool:
    after = statement[index + 1]
    if after.text == "(":
        # A variable may hold anything; `import(` may begin a method, whose parameters are no literals.
        return any(token.kind is TokenKind.LITERAL for token in statement[index + 2 : index + 3])
    return _is_string(after) or after.text in ("{", "*") or (after.kind is TokenKind.WORD and after.text != "in")


def _is_string(token: ScriptToken) -> bool:
    return token.kind is TokenKind.LITERAL and token.text[:1] in "\"'"


def _exports(statement: list[ScriptToken], index: int) -> bool:
    """Return whether the `from` at `index` belongs to an `export {…}` or `export * as x`."""
    for at in range(index - 1, -1, -1):
        if statement[at].text in (";", "import"):
            return False
        if statement[at].text == "export":
            return True
    return False


def as_element_text(code: str, *, module: bool = False) -> str:
    """Escape `code` so that it neither ends its `<script>` element nor changes the tokenizer's state.

    As HTML advises (4.12.1.3), `<` becomes `\\x3C` in literals; between tokens a space separates the operators. A
    literal whose source the page itself can read becomes an expression with the same value.
    """
    if ends_there(code):
        return code
    dangers = [match.start() for match in _DANGEROUS.finditer(code)]
    changes: list[Splice] = []
    templates = _Templates(code)
    for token in tokens(code):
        if token.start > dangers[-1] and not templates.open:
            break
        if token.kind is TokenKind.LITERAL and token.text[0] in "`}":
            changes += templates.part(token)
        elif "<" in token.text and token.kind in (TokenKind.LITERAL, TokenKind.COMMENT):
            changes += _literal(token)
        elif _DANGEROUS.match(code, token.start):
            # In a classic script `<!--` begins a comment (ECMA-262, B.1.1).
            comment = not module and code.startswith("<!--", token.start)
            end = token.start + (len("<!--") if comment else 1)
            changes.append(Splice(token.start, end, "//" if comment else "< "))
        templates.remember(token)
    return splice(code, _apart(changes))


def unwritable(code: str) -> int | None:
    """Return the position of the first text in `code` that may end its element; None if there is none."""
    match = _DANGEROUS.search(code) if not ends_there(code) else None
    return match.start() if match else None


def _apart(changes: list[Splice]) -> list[Splice]:
    """Drop changes that overlap an earlier one: an HTML comment hides the tokens in it."""
    splices: list[Splice] = []
    for change in sorted(changes, key=lambda one: one.start):
        if not splices or change.start >= splices[-1].end:
            splices.append(change)
    return splices


def _literal(token: ScriptToken) -> list[Splice]:
    safe = _DANGEROUS.sub(r"\\x3C", token.text)
    if safe == token.text:
        return []
    is_regex = token.kind is TokenKind.LITERAL and token.text[0] == "/"
    return [Splice(token.start, token.end, regular_expression(token.text) if is_regex else safe)]


class _Templates:
    """The template literals of `code` that are still open."""

    def __init__(self, code: str) -> None:
        self._name = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        self._count = 0
        self._open: list[tuple[bool, list[ScriptToken]]] = []
        self._before: list[ScriptToken] = []

    @property
    def open(self) -> bool:
        return bool(self._open)

    def remember(self, token: ScriptToken) -> None:
        """Remember a token that may be the tag of the next template."""
        if token.kind is not TokenKind.COMMENT:
            self._before = [*self._before[-40:], token]

    def part(self, token: ScriptToken) -> list[Splice]:
        """Return the changes for a template that ends with `token`; empty within one."""
        if token.text[0] == "`":
            self._open.append((self._is_tagged(), []))
        tagged, parts = self._open[-1] if self._open else (False, [])
        parts.append(token)
        if token.text.endswith("${"):
            return []
        if self._open:
            self._open.pop()
        safe = [_DANGEROUS.sub(r"\\x3C", part.text) for part in parts]
        changed = [(part, text) for part, text in zip(parts, safe, strict=True) if part.text != text]
        if not tagged or not changed:
            return [Splice(part.start, part.end, text) for part, text in changed]
        self._count += 1
        return template_call([part[1:] for part in parts], f"{self._name}.{self._count}", safe)

    def _is_tagged(self) -> bool:
        """Return whether a tag function precedes the template; not after `new`, which takes the template's result."""
        last = self._before[-1] if self._before else None
        if last is None:
            return False
        if last.kind is TokenKind.LITERAL:
            return last.text.endswith("`")  # the result of a template
        if _expects_expression(last, after_head=False):
            return False
        names = [token.text for token in self._before]
        while len(names) > 2 and names[-2] in (".", "?."):
            names = names[:-2]
        return names[-2:-1] != ["new"]


def with_source(code: str, url: str) -> str:
    """Prepend an assignment of its original `url` as `src` to an inlined classic script that reads `currentScript`.

    Bundles of webpack and Turbopack read it to find their other files. A browser does not load it for a running script.
    """
    if "currentScript" not in code:
        return code
    first = next((token.text for token in tokens(code) if token.kind is not TokenKind.COMMENT), "")
    strict = f"{first};" if first[1:-1] == "use strict" else ""
    # Not by `setAttribute`: the view runtime would treat it as a script of the backend.
    url_text = plain_json(url).replace("<", r"\u003c")
    put = f"(a=>{{a.value={url_text};document.currentScript.setAttributeNode(a)}})"
    attribute_script = f'document.currentScript&&{put}(document.createAttribute("src"));'
    return f"{strict}{attribute_script}{code}"
