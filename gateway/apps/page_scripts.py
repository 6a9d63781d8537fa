"""Packs the scripts of a page: inline, linked, moved to where they run, or left to the backend."""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from pydantic import TypeAdapter, ValidationError

from gateway.apps import exact_text
from gateway.apps.files import (
    VENDORED_AGAIN,
    Folder,
    Reference,
    Splice,
    Text,
    has_digest,
    is_embedded,
    own_files,
    splice,
)
from gateway.apps.markup import Element, Page, parse
from gateway.apps.node import LinkedScripts, Module, link, node, run
from gateway.apps.scripts import (
    ScriptToken,
    adds_modules,
    blocked_problems,
    find_imports,
    import_problems,
    late_imports,
    named_imports,
    unwritable,
    with_source,
)
from gateway.apps.scripts import as_element_text as script_text
from gateway.apps.styles import as_element_text as style_text
from gateway.apps.styles import pack_styles
from gateway.errors import DocumentError, Problem
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json

_PROGRAM: Final = """
const { Script } = require("node:vm");
const found = [];
for (const [file, code, line, column] of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
  try {
    new Script(code, { filename: file, lineOffset: line - 1, columnOffset: column - 1 });
  } catch (error) {
    const [at, , caret = ""] = error.stack.split("\\n");
    const on = Number(/\\d+$/.exec(at));
    const before = Math.max(caret.indexOf("^"), 0); // of a long line only the start is underlined
    found.push([file, on, before + (on === line ? column : 1), error.message]);
  }
}
process.stdout.write(JSON.stringify(found));
"""
_Found: Final = TypeAdapter(list[tuple[str, int, int, str]])


def syntax_problems(scripts: Sequence[Module]) -> list[Problem]:
    """Return the syntax errors of `scripts`, as Node reports them; empty without Node."""
    program = node()
    if program is None or not scripts:
        return []
    try:
        reports = run(program, "-e", _PROGRAM, text=plain_json([_job(script) for script in scripts]))
        return [Problem(*one) for one in _Found.validate_json(reports)]
    except (OSError, subprocess.SubprocessError, ValidationError):
        return []  # a failed check is no reason to refuse the page


def _job(script: Module) -> tuple[str, str, int, int]:
    at = script.text.problem(0, "")
    return at.file, script.source, at.line, at.column


WAITS = "webmcp-gateway-waits"
"""The type of such a script, which no browser runs, and the attribute with its kind: a module, deferred, or neither."""

OF_BACKEND = "webmcp-gateway-"
"""The prefix of its `src`, for a file of the backend that the runtime loads, and of its own `type`."""

RUN = frozenset({"", "text/javascript", "application/javascript", "application/x-javascript", "text/ecmascript"})
"""The types of classic scripts."""


def hold_back(packed: str, after: int) -> str:
    """Hold back each script of `packed` that begins behind `after`."""
    elements = parse(Text("", packed)).elements
    runs = [element for element in elements if element.start >= after and _runs(element)]
    return splice(packed, [change for element in runs for change in _waiting(element)])


def _runs(element: Element) -> bool:
    return element.name == "script" and not element.inert and _type(element) in RUN | {"module"}


def _type(element: Element) -> str:
    return (element.get("type") or "").strip().lower()


def _waiting(element: Element) -> list[Splice]:
    # Of two attributes of one name the first counts (HTML, 13.2.5.33).
    kind = "module" if _type(element) == "module" else "defer" if _is_deferred(element) else ""
    place = element.start + len("<script")
    attributes = (element.attributes[name] for name in ("src", "type") if name in element.attributes)
    return [
        Splice(place, place, f' type="{WAITS}" {WAITS}="{kind}"'),
        *(Splice(one.start, one.start, OF_BACKEND) for one in attributes),
    ]


def _is_deferred(element: Element) -> bool:
    return "src" in element.attributes and not {"defer", "async"}.isdisjoint(element.attributes)


_LOADING = frozenset({"src", "type", "async", "defer", "integrity", "crossorigin", "fetchpriority", "referrerpolicy"})

_LOADED = '<script>document.currentScript.previousElementSibling.dispatchEvent(new Event("load"))</script>'
"""Follows a script with a load handler: an inline script fires no load event."""

_DEFERRED = "webmcp-gateway-deferred"
IMPORT: Final = "webmcpGatewayImport"
"""The function of the page that imports what is not linked; the part of the runtime that defines it is large."""

CLASSIC = RUN | {_DEFERRED, exact_text.TYPE}
"""The types of classic scripts in a packed page."""

_CHANGED = (
    "holds text that ends a <script>, and is written in another way here: the text of its functions (toString) "
    "and a raw template behind `new` say so; write <\\/script"
)

_UNCLOSED = "this <script> has no end tag, and runs in no browser"

_SOURCES = frozenset({".ts", ".tsx", ".mts", ".jsx", ".vue", ".svelte", ".coffee"})
"""Files that a build makes scripts of."""

_KEPT = "!#$&'()*+,-./:;=?@_~%"
"""The characters of a URL that stay as they are in a fragment."""

_STARTER = (
    f'<script type="module">{{const kept=document.querySelector("script[type={_DEFERRED}]"),run=kept.cloneNode(!0);'
    'run.removeAttribute("type");kept.replaceWith(run);run.dispatchEvent(new Event("load"))}</script>'
)
"""Follows a deferred script: only a module can be inline and deferred, and keeps the order."""


class PageScripts:
    """The scripts of `page`, which is the file `path`; `home` is its absolute URL for `import.meta.url`.

    `sheets` are style sheets that modules load, for the head; `texts` are scripts in data blocks. `waits`: a script is
    the backend's, for which the others wait; `any`: there is a script. `fetches`: the page may load modules of the
    folder that it does not name, by `import()` or as scripts that it adds.
    """

    def __init__(self, page: Page, path: Path, folder: Folder, *, home: str) -> None:
        self.warnings: list[Problem] = []
        self.sheets: list[str] = []
        self.texts: list[str] = []
        self.notes: list[Problem] = []
        self.waits = False
        self.any = False
        self.fetches = False
        self._page = page
        self._path = path
        self._folder = folder
        self._home = home
        self._classic: list[Module] = []
        self._modules: list[tuple[Element, Module]] = []
        self._finding: list[Module] = []
        self._linked = False
        self._known: set[Path] = set()
        self._imports: dict[str, str] = {}
        self._scopes: dict[str, dict[str, str]] = {}

    def take(self, element: Element) -> list[Splice]:
        """Return the changes for one script. Raises `DocumentError`."""
        kind = (element.get("type") or "").strip().lower()
        module = kind == "module"
        source = element.attributes.get("src")
        if kind == "importmap":
            imports, scopes = _map_of(self._page.text.whole[element.end : element.text_end])
            self._imports |= imports
            self._scopes |= scopes
            return [remove_element(element)]
        if not module and kind not in RUN:
            return []
        self.any = True
        if not element.closed:
            self.warnings.append(self._page.text.problem(element.start, _UNCLOSED))
            return []
        if source is None:
            text, code = self._page.part(element.end), self._page.text.whole[element.end : element.text_end]
            if module:
                return self._take_module(element, Module(self._path, text, code))
            asking = self._classic_script(element, Module(self._path, text, code))
            return [Splice(element.end, element.text_end, asking)] if asking != code else []
        reference = Reference(source.value, self._page.text, source.start)
        if (integrity := self._folder.integrity_of(source.value)) is not None:
            return self._external(element, integrity)
        if (
            not is_embedded(source.value)
            and self._folder.url_to_write(source.value, self._path) is not None
            and not module
        ):
            self.waits = self.waits or not element.inert
            return []
        try:
            path, text = self._read(element, reference)
        except DocumentError as error:
            self.warnings += error.problems
            return [self._fails(element)]
        if module:
            return self._take_module(element, Module(path, text))
        code = with_source(self._classic_script(element, Module(path, text)), source.value)
        attributes = element.source_text(without=_LOADING)
        deferred = not element.inert and not {"defer", "async"}.isdisjoint(element.attributes)
        if not exact_text.stands(code):
            if self._reachable(element):
                self.texts.append(code)
                has_load_handler = "onload" in element.attributes
                packed = exact_text.element(code, attributes, deferred=deferred, heard=has_load_handler)
                return [Splice(element.start, element.close_end, packed)]
            code = self._in_element(code, text)
        if deferred:
            packed = f'<script type="{_DEFERRED}"{attributes}>{code}</script>{_STARTER}'
        else:
            packed = f"<script{attributes}>{code}</script>" + (_LOADED if "onload" in element.attributes else "")
        return [Splice(element.start, element.close_end, packed)]

    def _read(self, element: Element, reference: Reference) -> tuple[Path, Text]:
        """Return the file of a script, and its text. Raises `DocumentError`."""
        module = _type(element) == "module"
        if (
            module
            and self._folder.url_to_write(reference.url, self._path) is not None
            and not is_embedded(reference.url)
        ):
            raise reference.error(
                f"{reference.url} is a module of the backend, which cannot be linked: save it in the app's folder"
            )
        path = self._folder.find(reference, self._path, "scripts")
        check_integrity(self._folder, element, path, reference)
        if path.suffix.lower() in _SOURCES:
            raise reference.error(f"{reference.url} is not JavaScript: build the app, and pack what that wrote")
        # Modules are UTF-8, whatever they declare (HTML, 8.1.4.2).
        return path, self._folder.text(path, reference, "utf-8" if module else element.get("charset") or "")

    def _fails(self, element: Element) -> Splice:
        """Return the script as one that cannot be loaded: it fires `error`, and the others run, as in a browser."""
        source = element.get("src") or "inline"
        failing = f'src="about:invalid#{html.escape(quote(source, safe=_KEPT))}"'
        unsaid = frozenset({"src", "integrity", "crossorigin"})
        opening = f"<script{element.source_text(without=unsaid)} {failing}>"
        return Splice(element.start, element.close_end, f"{opening}</script>")

    def _external(self, element: Element, integrity: str) -> list[Splice]:
        """Return a script of another site that the policy opens, with the digest that it must have."""
        checked = f'integrity="{integrity}" crossorigin="anonymous"'
        rest = element.source_text(without=frozenset({"integrity", "crossorigin"}))
        return [Splice(element.start, element.close_end, f"<script{rest} {checked}></script>")]

    def _reachable(self, element: Element) -> bool:
        """Return whether `document.currentScript` is set when it runs: in shadow trees it is null (HTML, 4.12.1.4)."""
        return not element.inert and "shadowrootmode" not in self._page.text.whole

    def _in_element(self, code: str, text: Text, *, module: bool = False) -> str:
        """Return `code`, from `text`, escaped for its element; note a change."""
        made = script_text(code, module=module)
        if made != code:
            place = unwritable(text.whole[text.start :]) or 0
            self.notes.append(text.problem(place, _CHANGED))
        return made

    def _classic_script(self, element: Element, script: Module) -> str:
        """Return its code with each `import()` of a file replaced by a call of a module behind it."""
        text, code = script.text, script.source
        self._note_added_modules(script)
        statements = find_imports(code)
        imports = named_imports(statements) if not element.inert else []
        late = late_imports(statements) if not element.inert else []
        import_starts = {word.start for word in (*late, *(word for word, _ in imports))}
        self.warnings += import_problems(text, statements, linked=import_starts)
        self._classic.append(script)
        changes: list[Splice] = []
        for word, name in imports:
            if name.text[1] in "./":
                try:
                    self._folder.find(
                        Reference(name.text[1:-1], text, word.start), script.path, "scripts", routable=False
                    )
                except DocumentError as error:
                    self.warnings += error.problems
                    continue
            promise = self._shared_promise()
            # It begins with a word: behind a line without a semicolon, a parenthesis would call that line's value.
            changes.append(Splice(word.start, word.end, f"Object(()=>{promise}.promise.then(part=>part()))"))
            self._stand_behind(element, script, word, f"{promise}.resolve(()=>import({name.text}))")
        if late and self._module_names:
            promise = self._shared_promise()
            changes += [
                Splice(word.start, word.end, f"Object(name=>{promise}.promise.then(part=>part(name)))") for word in late
            ]
            files = ",".join(f"{name}:()=>import({name})" for name in self._module_names)
            path = f"new URL(name,{plain_json(self._home)}).pathname"
            part = f"{promise}.resolve(name=>({{{files}}})[{path}]?.()??import(name))"
            self._finding += script, self._stand_behind(element, script, late[0], part)
        elif late and self._has_more_modules:
            # It begins with a word, as above.
            own = plain_json(urljoin(self._home, self._folder.url(script.path)))
            call = f"Object(globalThis.{IMPORT}?.({own})??(name=>import(name)))"
            changes += [Splice(word.start, word.end, call) for word in late]
            self._finding.append(script)
            self.fetches = True
        return splice(code, changes)

    def _note_added_modules(self, script: Module) -> None:
        self.fetches = self.fetches or (adds_modules(script.source) and self._has_more_modules)

    @cached_property
    def _has_more_modules(self) -> bool:
        """Return whether the folder has scripts that no element of the page names: one may be imported."""
        names = {_file_name(one.get("src") or "") for one in self._page.elements}
        scripts = (path for path in own_files(self._folder.root).values() if path.suffix in (".js", ".mjs"))
        return any(path.name not in names for path in scripts)

    def _imports_more(self, module: Module) -> bool:
        """Return whether a module may load a file whose name is known only at run time."""
        return self.fetches or (self._has_more_modules and bool(late_imports(find_imports(module.source))))

    def _shared_promise(self) -> str:
        """Return the expression for the promise that a classic script and the module behind it share."""
        return f'(globalThis[Symbol.for("webmcp-gateway.import.{len(self._modules)}")]??=Promise.withResolvers())'

    def _stand_behind(self, element: Element, script: Module, word: ScriptToken, code: str) -> Module:
        part = Module(script.path, Text(script.text.file, script.text.whole, script.text.start + word.start), code)
        self._modules.append((element, part))
        return part

    @cached_property
    def _module_names(self) -> list[str]:
        """The module URLs in attributes of custom elements, as Astro writes them, as JavaScript strings."""
        scripts: dict[str, None] = {}
        for element in self._page.elements:
            for attribute in element.attributes.values():
                if "-" in element.name and re.search(r"\.m?js(?:[?#].*)?\Z", attribute.value):
                    reference = Reference(attribute.value, self._page.text, attribute.start)
                    with suppress(DocumentError):
                        path = self._folder.find(reference, self._path, "scripts", routable=False)
                        scripts[plain_json(self._folder.url(path))] = None
        return [*scripts]

    def _take_module(self, element: Element, module: Module) -> list[Splice]:
        if not element.inert:
            if module.code is None and module.path in self._known:
                return [remove_element(element)]  # a module runs once
            if module.code is None:
                self._known.add(module.path)
            self._modules.append((element, module))
            self._note_added_modules(module)
            return []
        # It runs with each copy of its template, by itself.
        if module.needs_linking():
            return [self._module(element, code, module) for code in self._link_modules([module])]
        return [self._module(element, module.source, module)] if module.code is None else []

    def link_changes(self) -> list[Splice]:
        """Return the changes for module scripts: each unchanged, or linked, with shared imports in the first."""
        self._linked = any(module.needs_linking() or self._imports_more(module) for _, module in self._modules)
        if not self._linked:
            return [self._module(element, one.source, one) for element, one in self._modules if one.code is None]
        try:
            codes = self._link_modules([module for _, module in self._modules])
        except DocumentError as error:
            self.warnings += error.problems
            return [*self._without_linking()]
        return [self._module(element, code, one) for (element, one), code in zip(self._modules, codes, strict=True)]

    def _without_linking(self) -> Iterator[Splice]:
        """Yield the changes for module scripts that cannot be linked: those that import nothing run all the same."""
        for element, module in self._modules:
            if module.needs_linking():
                if _type(element) == "module":
                    yield self._fails(element)
            elif module.code is None:
                yield self._module(element, module.source, module)

    def blocked_uses(self, *, asking: bool, dedicated: bool) -> list[Problem]:
        """Return the uses of features that hosts block; `asking`: the scripts call the runtime for `location`.

        `dedicated`: the page has an origin of its own.
        """
        scripts = (*self._classic, *(module for _, module in self._modules))
        return [
            problem
            for script in scripts
            for problem in blocked_problems(
                script.text,
                script.source,
                asking=asking,
                finding=self._has_more_modules or script in self._finding,
                dedicated=dedicated,
            )
        ]

    def syntax_errors(self) -> list[Problem]:
        """Return the syntax errors of the scripts; linked modules were parsed before."""
        problems = syntax_problems(self._classic)
        if not self._linked and self._modules:
            with suppress(DocumentError):
                problems += self._link([module for _, module in self._modules]).problems
        return problems

    def _link_modules(self, modules: list[Module]) -> tuple[str, ...]:
        """Link the modules, and add the style sheets that they load to the head. Raises `DocumentError`."""
        linked = self._link(modules)
        self.warnings += linked.problems
        for name in linked.styles:
            path = (self._folder.root / name).resolve()
            text = self._folder.text(path)
            self.sheets.append(
                f"<style>{style_text(pack_styles(text, text.whole, path, self._folder, (path,)))}</style>"
            )
        return linked.codes

    def _link(self, modules: list[Module]) -> LinkedScripts:
        root, base = self._folder.root, self._folder.base
        files = self._folder.vendored.files
        linked = link(
            modules,
            root,
            base=base,
            home=self._home,
            imports=self._imports,
            scopes=self._scopes,
            vendored=files,
            fetches=self.fetches,
        )
        self._folder.findings.foreign.extend(("scripts", url) for url in linked.foreign)
        return linked

    def _module(self, element: Element, code: str, module: Module) -> Splice:
        code = self._in_element(code, module.text, module=True)
        if (element.get("type") or "").strip().lower() != "module":  # a classic script calls it
            part = f'<script type="module">{code}</script>'
            return Splice(element.close_end, element.close_end, part)
        opening = f'<script type="module"{element.source_text(without=_LOADING)}>'
        return Splice(element.start, element.close_end, f"{opening}{code}</script>")


def _file_name(url: str) -> str:
    """Return the name of the file at a URL; empty if it is not a URL, such as `http://[`."""
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return ""


def _map_of(text: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the `imports` and `scopes` of an import map; empty for a broken one, as in browsers."""
    try:
        import_map = parse_json(text)
    except (ValueError, RecursionError):
        return {}, {}
    imports, scopes = (_object(_object(import_map).get(name)) for name in ("imports", "scopes"))
    return _addresses(imports), {name: _addresses(_object(scope)) for name, scope in scopes.items()}


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _addresses(import_map: dict[str, object]) -> dict[str, str]:
    return {name: address for name, address in import_map.items() if isinstance(address, str)}


def check_integrity(folder: Folder, element: Element, path: Path, reference: Reference) -> None:
    """Check the digest that an element names for a file of another site. Raises `DocumentError`."""
    integrity = element.get("integrity") or ""
    if path in folder.vendored.urls and integrity and not has_digest(path.read_bytes(), integrity):
        raise reference.error(
            f"{reference.url} has other bytes than its `integrity` names, and is left out: {VENDORED_AGAIN}"
        )


def remove_element(element: Element) -> Splice:
    """Return the removal of an element."""
    return Splice(element.start, element.close_end, "")
