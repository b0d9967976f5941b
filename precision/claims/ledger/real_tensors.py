"""What a real model hands to attention, against the unit-variance law."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from precision.claims.claim import Claim, Judgement, claims, decide
from precision.claims.statistics import Rows
from precision.experiments.draws import generator
from precision.experiments.effort import Effort
from precision.experiments.evidence import Evidence, Share, Value
from precision.experiments.plot import Plot
from precision.inputs.capture_file import load_call, read_header, resolve
from precision.report.show import listed

_STD, _LARGEST_SCORE = "raw standard deviation of a layer", "largest |q.k| of a layer"
_SEEN, _ALL, _LAW = "pairs that take part", "all pairs", "√d_k"
_RATIO = "raw standard deviation / √d_k, by head"
_RATIO_ALL = "the same over all pairs"
_SHARP, _ENTROPY = "largest weight, mean", "entropy / ln N, mean"
_TOLERANCE = 0.1


@claims.register("real-tensors")
@dataclass(frozen=True)
class RealTensors(Claim):
    """Trained models meet the unit-variance assumption."""

    topic = "real models"
    source = "textbook wisdom"
    said = "raw scores of standard deviation √d_k"
    expected = "refuted"
    plot = Plot(
        "Pairs that take part are those that the mask lets through; all pairs is what an unfused kernel computes, "
        "padding included. A head that keeps the law has a 1 in its cell. The bands are over the heads of a layer.",
        x="layer",
        base2=False,
        grids=frozenset({_RATIO, _RATIO_ALL}),
    )
    replicates = "heads of a layer"

    def measure(self, effort: Effort) -> Iterable[Value]:
        path = resolve(effort.capture)
        for layer in range(len(read_header(path).calls)):
            call = load_call(path, layer)
            q, k = call.q.double(), call.k.double()
            raw = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
            yield from _layer(layer, raw, _taking_part(call.attn_mask, call.is_causal, raw), q.shape[-1], call.scale)

    def judge(self, seen: Evidence) -> Judgement:
        std, everywhere, law = (seen.line(_STD, setting) for setting in (_SEEN, _ALL, _LAW))
        heads = seen.frame[seen.frame["quantity"] == _RATIO].sort_values("value")
        broken = heads[(heads["value"] - 1).abs() > _TOLERANCE]
        kept = [_name(head) for _, head in heads.drop(broken.index).iterrows()]
        worst = heads.iloc[-1]
        grounds = (
            f"Layer by layer the raw standard deviation is {_span(std)} over the pairs that take part and "
            f"{_span(everywhere)} over all pairs, padding included, where the law predicts {law[0]:.2f}; the largest "
            f"score is {max(seen.line(_LARGEST_SCORE, _ALL).values()):.0f}. {len(broken)} of {len(heads)} heads break "
            f"the law by more than {_TOLERANCE:.0%}; the widest, {_name(worst)}, is at {worst['value']:.1f} times. "
            f"{'No head keeps it' if not kept else f'Those that keep it: {listed(kept)}'}."
        )
        return decide(len(broken) < len(heads) / 2, grounds)


def _layer(layer: int, raw: Tensor, mask: Tensor, d_k: int, scale: float | None) -> Iterator[Value]:
    """Values of each head of one call; raw and mask (B, H, L, S), mask True where a pair takes part."""
    root = math.sqrt(d_k)
    yield Value(_STD, _SEEN, layer, 0, float(raw[mask].std()))
    yield Value(_STD, _ALL, layer, 0, float(raw.std()))
    yield Value(_STD, _LAW, layer, 0, root)
    yield Value(_LARGEST_SCORE, _ALL, layer, 0, float(raw.abs().max()))
    for head in range(raw.shape[1]):
        scores, part = raw[:, head], mask[:, head]
        yield Value(_RATIO, f"head {head}", layer, 0, float(scores[part].std()) / root)
        yield Value(_RATIO_ALL, f"head {head}", layer, 0, float(scores.std()) / root)
        rows = part.sum(-1) > 1  # a row that sees one key has nothing to weigh
        for name, factor in (("as trained", 1 / root if scale is None else scale), ("unscaled", 1.0)):
            weights = (scores * factor).masked_fill(~part, -torch.inf).softmax(-1)[rows]
            found = Rows.of(weights, generator(0))
            # Of the keys that the row sees, not of all.
            entropy = found.entropy * math.log(weights.shape[-1]) / part.sum(-1)[rows].double().log()
            yield Share(_SHARP, name, layer, head, float(found.largest.mean()))
            yield Share(_ENTROPY, name, layer, head, float(entropy.mean()))


def _taking_part(mask: Tensor | None, is_causal: bool, raw: Tensor) -> Tensor:
    """(B, H, L, S), True where the query sees the key; an additive mask hides a key by what no score can outweigh."""
    part = torch.ones_like(raw, dtype=torch.bool)
    if is_causal:
        part = part.tril()
    if mask is None:
        return part
    return part & (mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2).expand_as(raw)


def _span(line: dict[float, float]) -> str:
    return f"{min(line.values()):.1f} to {max(line.values()):.1f}"


def _name(head: pd.Series[Any]) -> str:
    return f"{head['setting']} of layer {head['x']:.0f}"
