"""A smaller SVG that looks the same: the ledger has a figure for every claim."""

from __future__ import annotations

import re
from collections import Counter

_MOST = 60  # styles that get a class; beyond these each is used a few times only


def compact(svg: str) -> str:
    """Coordinates to a hundredth of a point, no indentation, no turns by 0, and a class for each repeated style."""
    svg = re.sub(r"(\.\d\d)\d{4}\b", r"\1", svg)
    svg = re.sub(r"\n\s+", "\n", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    styles = [style for style, times in Counter(re.findall(r'style="([^"]*)"', svg)).most_common(_MOST) if times > 1]
    for number, style in enumerate(styles):
        svg = svg.replace(f'style="{style}"', f'class="s{number}"')
    rules = "".join(f".s{number}{{{style}}}" for number, style in enumerate(styles))
    return svg.replace("<style>", f"<style>{rules}", 1)
