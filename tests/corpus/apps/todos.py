"""TodoMVC in ten frameworks."""

from tests.corpus.catalog import app, folder
from tests.corpus.visit import Visit

FRAMEWORKS = {
    "AngularJS": ("angularjs", "AngularJS 1, ngRoute"),
    "Backbone": ("backbone", "Backbone, jQuery, localStorage"),
    "CanJS": ("canjs", "CanJS, Mustache"),
    "Ember": ("emberjs", "Ember 1, Handlebars"),
    "Knockout": ("knockoutjs", "Knockout, Director"),
    "Mithril": ("mithril", "Mithril 0.1"),
    "Ractive": ("ractive", "Ractive, Director"),
    "TypeScript": ("typescript-angular", "TypeScript, AngularJS 1"),
    "React": ("react", "React 0.10 with JSX compiled in the page"),
    "Vue": ("vue", "Vue 0.10, Director"),
}


async def use(visit: Visit) -> None:
    """Add three items, finish one, filter, and clear."""
    for item in ("Write", "Read", "Sleep"):
        await visit.fill("#new-todo", item)
        await visit.press("#new-todo", "Enter")
    await visit.read_all("#todo-list > li label", 3)
    await visit.click("#todo-list > li .toggle")
    await visit.read("#todo-count")
    await visit.click("#filters a", "Completed")
    await visit.read("#todo-list li.completed")
    await visit.click("#filters a", "All")
    await visit.click("#clear-completed")
    await visit.read_all("#todo-list > li label", 2)
    await visit.evaluate("location.hash")


LIMITS = {
    "CanJS": "Templates are rendered by a direct `eval` that uses `this`; the frame forbids `eval` (`script-src`), "
    "and the emulation cannot know the caller's `this`."
}

for name, (inner, technique) in FRAMEWORKS.items():
    app(
        f"TodoMVC {name}",
        "todomvc",
        technique,
        folder(f"examples/{inner}"),
        limit=LIMITS.get(name, ""),
        quick=name == "Vue",
    )(use)
