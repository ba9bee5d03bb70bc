"""The line of a running stage: its figures stay whole on a terminal of 80 columns, and the note has what is left."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from airgen.steps.progress import Display


@pytest.mark.parametrize("width", [80, 140])
def test_the_figures_are_whole(tmp_path: Path, width: int) -> None:
    out = io.StringIO()
    display = Display(tmp_path / "status.json", Console(file=out, force_terminal=True, width=width))
    with display.stage("judgment of its own", 1000) as bar:
        bar.advance(370, "last: how does a keeper light the lamp of the outer harbour when the wind has risen " * 2)
    line = re.split(r"[\r\n]+", re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", out.getvalue()).rstrip())[-1]
    assert re.search(r"judgment of its own .* 370/1000 +[\d,.]+/s \d:\d\d:\d\d left ", line) and len(line) <= width
    assert ("light the lamp" in line) == (width == 140)
