"""Apps whose pages their own servers render, as published: the server runs beside, and there is no folder."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.corpus.catalog import rendered_app, server
from tests.corpus.visit import Visit


def animals(folder: Path) -> None:
    """A database of two tables."""
    with closing(sqlite3.connect(folder / "zoo.db")) as database:
        database.executescript("""
            create table animals (id integer primary key, name text, legs integer);
            insert into animals (name, legs) values ('Koala', 4), ('Ant', 6), ('Heron', 2), ('Spider', 8);
            create table notes (id integer primary key, animal integer references animals(id), body text);
            insert into notes (animal, body) values (1, 'sleeps'), (2, 'works');
        """)


@rendered_app(
    "Datasette",
    "datasette",
    "pages rendered by a backend (ASGI, Jinja), CodeMirror 5",
    server(
        "datasette",
        "datasette",
        "serve",
        "zoo.db",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--setting",
        "default_cache_ttl",
        "0",
        files=animals,
    ),
    assets=("/-/static/**", "/favicon.ico"),
    ignore=(r"Queries took [\d.]+ms",),
)
async def datasette(visit: Visit) -> None:
    """Open a table, filter and sort it, follow a link to another table's row, and run SQL."""
    await visit.click("h2 a", "zoo")
    await visit.read(".db-table", "animals")
    await visit.click("h3 a", "animals")
    await visit.find("select[name=_filter_column]").first.select_option("legs")
    await visit.find("select[name=_filter_op]").first.select_option("gt")
    await visit.fill("input[name=_filter_value]", "2")
    await visit.click("input[value=Apply]")
    await visit.read("h3", "3 rows where legs > 2")
    await visit.click("th.col-legs a", "legs")
    await visit.read("h3", "sorted by legs")
    await visit.read_all("td.col-name", 3)
    await visit.click(".crumbs a", "zoo")
    await visit.click("h3 a", "notes")
    await visit.read("table.rows-and-columns", "sleeps")
    await visit.click("td.col-animal a", "Koala")
    await visit.read("table.rows-and-columns", "Koala")
    await visit.evaluate("location.pathname + ' ' + document.title")
    await visit.click(".crumbs a", "zoo")
    await visit.click(".CodeMirror-lines")
    await visit.page.keyboard.press("Control+A")
    await visit.page.keyboard.type("select name, legs * 10 as many from animals where legs < :most order by many")
    await visit.click("input[value='Run SQL']")
    await visit.fill("input[name=most]", "8")
    await visit.click("input[value='Run SQL']")
    await visit.read_all("td.col-many", 3)
    await visit.evaluate("location.search")
    await visit.evaluate("history.length > 5")


@rendered_app(
    "sqlite-web",
    "sqlite-web",
    "pages rendered by a backend (Flask, Jinja), jQuery, Bootstrap 4",
    server("sqlite-web", "sqlite_web.sqlite_web", "-x", "-H", "127.0.0.1", "-p", "{port}", "zoo.db", files=animals),
    assets=("/static/**",),
    ignore=(r"\S+/zoo\.db", r"20\d\d-\d\d-\d\d \d\d:\d\d"),
)
async def sqlite_web(visit: Visit) -> None:
    """Sort a table, add a row by a form with a redirect and a flash message, change and delete one, and run SQL."""
    await visit.read("td", "2 tables")
    await visit.click("#sidebar a", "animals")
    await visit.read(".highlight", "CREATE TABLE")
    await visit.click(".nav-tabs a", "Content")
    await visit.click("th a", "legs")
    await visit.read("tbody tr", "Heron")
    await visit.click(".nav-tabs a", "Insert")
    await visit.fill("[name=name]", "Crab")
    await visit.fill("[name=legs]", "10")
    await visit.click("button", "Insert")
    await visit.read(".alert")
    await visit.click(".nav-tabs a", "Content")
    await visit.read("tbody tr", "Crab")
    await visit.find("tbody tr", "Ant").locator("a[title=Edit]").click()
    await visit.click("[name=chk_name]")
    await visit.fill("[name=name]", "Bee & Co.")
    await visit.click("button[type=submit]", "Update")
    await visit.read(".alert")
    await visit.click(".nav-tabs a", "Content")
    await visit.read("tbody tr", "Bee & Co.")
    await visit.find("tbody tr", "Spider").locator("a[title=Delete]").click()
    await visit.click("button[type=submit]", "Delete")
    await visit.read(".alert")
    await visit.click(".nav-tabs a", "Content")
    await visit.read_all("tbody tr", 4)
    await visit.click(".nav-tabs a", "Query")
    await visit.fill("textarea[name=sql]", "select count(*) as animals, sum(legs) as legs from animals")
    await visit.click("button", "Execute")
    await visit.read("h3", "Results")
    await visit.read_all("tbody td", 3)
    await visit.fill("textarea[name=sql]", "select nothing")
    await visit.press("textarea[name=sql]", "Control+Enter")
    await visit.read(".invalid-feedback", "nothing")
