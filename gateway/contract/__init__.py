"""The `http_request` contract, without I/O: decodes arguments, encodes results."""

from gateway.contract.arguments import INPUT_SCHEMA, OUTPUT_SCHEMA, UploadedBody, default_type, parse_arguments
from gateway.contract.results import (
    TEXT_BLOCK_LIMIT,
    in_base64,
    problem,
    result,
    text_block,
    text_of_json,
    whole_characters,
)

__all__ = [
    "INPUT_SCHEMA",
    "OUTPUT_SCHEMA",
    "TEXT_BLOCK_LIMIT",
    "UploadedBody",
    "default_type",
    "in_base64",
    "parse_arguments",
    "problem",
    "result",
    "text_block",
    "text_of_json",
    "whole_characters",
]
