"""HTML pages in notebooks."""

import html

HEIGHT_PX = 640


def embedded_page(page: str) -> str:
    """Returns a whole page as a frame within another: its styles and its content policy stay separate."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox style="width: 100%; height: {HEIGHT_PX}px; '
        'border: 1px solid #dde2e8; background: #fff"></iframe>'
    )
