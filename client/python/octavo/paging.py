"""Lists that come in pages."""

from typing import Callable


def pages(call: Callable, field: str) -> list:
    """All elements of a paged list. `call`: a page token ("" for the first) → the answer; `field`:
    the list in it."""
    result, token = [], ""
    while True:
        page = call(token)
        result.extend(getattr(page, field))
        token = page.next_page_token
        if not token:
            return result
