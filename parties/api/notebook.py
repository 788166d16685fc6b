"""HTML pages in notebooks."""

from parties.report.render import page_templates

HEIGHT_PX = 640


def embedded_page(page: str) -> str:
    """Returns a whole page as a frame within another: its styles and its content policy stay separate."""
    template = page_templates(__file__).get_template("embedded.html")
    return template.render(page=page, height_px=HEIGHT_PX)
