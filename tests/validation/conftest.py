"""Figures have tests of their own, and take seconds to draw."""

import pytest


def words_of(canvas, title):
    """What is written in a figure, without its drawing."""
    from matplotlib.text import Text

    return f"<svg> {' '.join(text.get_text() for text in canvas.findobj(Text))} </svg>"


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    if request.module.__name__.rpartition(".")[2] != "test_figures":
        monkeypatch.setattr("diffcredit.validation.presentation.drawing.to_svg", words_of)
