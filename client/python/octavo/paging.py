"""Lists that come in pages."""

from typing import Callable

_PAGE = 1000  # the most that the server puts into one


def pages(call: Callable, request, field: str) -> list:
    """All elements of a list. `call`: sends a request; `request`: of the first page; `field`: the
    list in the answer."""
    request.page_size = _PAGE
    result = []
    while True:
        page = call(request)
        result.extend(getattr(page, field))
        if not page.next_page_token:
            return result
        request.page_token = page.next_page_token
