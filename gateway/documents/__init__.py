"""Parses YAML into values with positions, and reads them with all problems of a file reported at once.

YAML 1.2 core types (so `no` and `on` are text); tags, aliases, duplicate keys and more than one document are refused.
`${env:NAME}` and the like are not interpreted here.
"""

from gateway.documents.nodes import Node, load, parse_duration, parse_size
from gateway.documents.reader import Report, Section, read_document, read_parsed, suggestion

__all__ = [
    "Node",
    "Report",
    "Section",
    "load",
    "parse_duration",
    "parse_size",
    "read_document",
    "read_parsed",
    "suggestion",
]
