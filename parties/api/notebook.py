"""Pages as notebooks show them.

Provides ``embedded_page``. Secret: nothing.
"""

import html

HEIGHT_PX = 640


def embedded_page(page: str) -> str:
    """A whole page as a frame within another: styles stay inside, and so does the page's own policy."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox style="width: 100%; height: {HEIGHT_PX}px; '
        'border: 1px solid #dde2e8; background: #fff"></iframe>'
    )
