"""All apps of the corpus."""

from tests.corpus.apps import api_pages, games, pages, reports, servers, todos, tools
from tests.corpus.catalog import APPS

__all__ = ["APPS", "api_pages", "games", "pages", "reports", "servers", "todos", "tools"]
