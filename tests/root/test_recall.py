"""Results computed from header fields are cached, within bounds."""

from gateway.caches import FEW, cache_by_headers
from gateway.model import Headers


def test_the_same_fields_are_looked_at_once_and_many_each_time() -> None:
    """So that the cache is bounded; another argument is another key."""
    asked: list[tuple[Headers, int]] = []

    @cache_by_headers
    def counted(headers: Headers, more: int) -> int:
        asked.append((headers, more))
        return len(headers) + more

    few, many = (("etag", "1"),), (("etag", "1"),) * (FEW + 1)
    assert [counted(few, 1), counted((("etag", "1"),), 1), counted(few, 2)] == [2, 2, 3]
    assert [counted(many, 0), counted(many, 0)] == [FEW + 1] * 2
    assert asked == [(few, 1), (few, 2), (many, 0), (many, 0)]
