"""Pictures of reports drawn once in a process: pages of the same run are made many times, and drawing is most of it.

Pictures are functions of their arguments, as ``tests/parties/test_pictures.py`` holds, which draws each time.
"""

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

FIGURES = "parties.report.figures"


@dataclass
class _Undrawn:
    """A figure that is drawn when its text is wanted, unless it was before."""

    draw: Callable[[], Any]
    key: bytes


def draw_once() -> None:
    """Lets all pages of this process draw each picture once; does nothing before their module is imported."""
    figures = sys.modules.get(FIGURES)
    if figures is None or hasattr(figures, "drawn_once"):
        return
    drawn: dict[bytes, str] = {}
    to_svg: Callable[[Any], str] = vars(figures)["to_svg"]

    def undrawn(draw: Callable[..., Any], *arguments: Any, **options: Any) -> _Undrawn:
        key = pickle.dumps((draw.__name__, arguments, sorted(options.items())))
        return _Undrawn(partial(draw, *arguments, **options), key)

    def once(figure: Any) -> str:
        if not isinstance(figure, _Undrawn):
            return to_svg(figure)
        if figure.key not in drawn:
            drawn[figure.key] = to_svg(figure.draw())
        return drawn[figure.key]

    for name, draw in list(vars(figures).items()):
        if name.startswith("draw_"):
            setattr(figures, name, partial(undrawn, draw))
    vars(figures).update(to_svg=once, drawn_once=drawn)
