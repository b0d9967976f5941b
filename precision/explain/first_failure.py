"""First failure of a staged run: for every NaN, infinity and lost value, where it began and how far it went."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

import torch
from torch import Tensor

from precision.explain.events import Event, find_events, is_failed
from precision.numerics.failure import RESULTS, Failure, Kind, Place, Reach
from precision.operands import Operands
from precision.stages.backward import attend_backward
from precision.stages.forward import attend
from precision.stages.plan import BACKWARD_STAGES, FORWARD_STAGES, STAGES, Plan
from precision.stages.rounder import Seen

_ORDER = {stage: place for place, stage in enumerate(STAGES)}
_OF_KEYS = ("k", "v", "dk", "dv")  # their rows are keys; those of the other stages are queries
_WEIGHTS = ("e", "weights", "p", "p_grad")  # of these a row has a sum to lose from
_HARD = ("input", "overflow", "invalid")  # these end in NaN or infinity; the others stay finite
_NOBODY = -1
_MOST_PLACES = 1000


def find_failures(plan: Plan, x: Operands, do: Tensor | None = None) -> tuple[Failure, ...]:
    """Run the plan on x, and backward from do (B, Hq, L, d_v) where it is given, and follow every value that fails.

    First the failures that make a result NaN or infinite, each in the order of the data path. A row of queries belongs
    to the failure that came first in it; to a value that became 0 or was cut only where there is no other.
    The accumulators of the gradients are not followed, for an element of theirs has no row of its own.
    """
    watch = _Watch(plan, x)
    done = attend(plan, x, partial(watch, FORWARD_STAGES))
    if do is not None:
        attend_backward(done, do, partial(watch, BACKWARD_STAGES))
    return watch.failures()


class _Watch:
    """Sees every stage once and keeps, for each row of queries, which failure came first."""

    def __init__(self, plan: Plan, x: Operands) -> None:
        self._scales_keys = plan.scale == "both"
        self._queries, self._keys = x.q.shape[:3], x.k.shape[:3]
        self._found: dict[tuple[str, Kind], _Found] = {}
        self._hard, self._soft = (torch.full(self._queries, _NOBODY, device=x.q.device) for _ in range(2))
        self._failed: dict[tuple[str, bool], Tensor] = {}  # elements that failed before this stage, by stage and row

    def __call__(self, stages: Container[str], seen: Seen) -> None:
        """Note what happens at a stage, if it is one of these."""
        if seen.stage not in stages or seen.stage == "grad_acc":
            return
        of_keys = self._has_rows_of_keys(seen)
        place = tuple(slice(at, at + size) for at, size in zip(seen.corner, seen.before.shape[:3], strict=False))
        clean = self._clean(of_keys)[place][..., None]
        inherited = is_failed(seen.stage, seen.after)
        for event in find_events(seen, clean):
            self._add(seen, event, place, of_keys)
            inherited &= ~event.hit
        failed = self._failed.setdefault((seen.stage, of_keys), self._rows(of_keys, torch.int64))
        failed[place] = inherited.sum(-1)  # of a state, the last one stays

    def failures(self) -> tuple[Failure, ...]:
        """What was found, the worst and the earliest first."""
        owner = self._hard.where(self._hard != _NOBODY, self._soft)
        found = [
            each.failure(*key, self._spread(key[0], owner == number))
            for number, (key, each) in enumerate(self._found.items())
        ]
        return tuple(sorted(found, key=lambda f: (not f.is_shown, f.kind not in _HARD, _ORDER[f.stage])))

    def _has_rows_of_keys(self, seen: Seen) -> bool:
        """Where the scale is on q and on k, `scaled` is seen twice, and k comes second."""
        again = (seen.stage, False) in self._failed
        return seen.stage in _OF_KEYS or (seen.stage == "scaled" and self._scales_keys and again)

    def _rows(self, of_keys: bool, dtype: torch.dtype) -> Tensor:
        return torch.zeros(self._keys if of_keys else self._queries, dtype=dtype, device=self._hard.device)

    def _clean(self, of_keys: bool) -> Tensor:
        """Rows of which nothing has failed: for keys, of whose heads no row of queries has."""
        clean = (self._hard == _NOBODY) & (self._soft == _NOBODY)
        return self._heads(clean, all_rows=True)[..., None].expand(self._keys) if of_keys else clean

    def _heads(self, rows: Tensor, all_rows: bool) -> Tensor:
        """(B, Hkv): whether any row, or each, of the query heads that share a key head is True in (B, Hq, L)."""
        of_heads = rows.reshape(*self._keys[:2], -1)
        return of_heads.all(-1) if all_rows else of_heads.any(-1)

    def _add(self, seen: Seen, event: Event, place: tuple[slice, ...], of_keys: bool) -> None:
        key = (seen.stage, event.kind)
        found = self._found.setdefault(key, _Found(event.limit, self._rows(of_keys, torch.bool)))
        found.add(seen, event, place)
        number = list(self._found).index(key)
        owner = self._hard if event.kind in _HARD else self._soft
        if of_keys:  # every row of queries that shares the head may see the key
            group = self._queries[1] // self._keys[1]
            hit = event.hit.flatten(2).any(-1).repeat_interleave(group, 1)[..., None]
        else:
            hit, owner = event.hit.any(-1), owner[place]
        owner.masked_fill_(hit & (owner == _NOBODY), number)

    def _spread(self, stage: str, owned: Tensor) -> tuple[Reach, ...]:
        """What failed at later stages in these rows of queries, and in the key heads that they see."""
        reaches = []
        for (later, of_keys), failed in sorted(self._failed.items(), key=lambda item: _ORDER[item[0][0]]):
            if _ORDER[later] > _ORDER[stage]:
                counts = failed[self._heads(owned, all_rows=False) if of_keys else owned]
                reaches.append(Reach(later, int(counts.sum()), int((counts > 0).sum())))
        return tuple(reach for reach in reaches if reach.elements)


class _Found:
    """The values of one stage that failed in one way, while the run goes on."""

    def __init__(self, limit: float | None, rows: Tensor) -> None:
        self._limit, self._rows = limit, rows
        self._places: list[Place] = []
        self._elements = 0
        self._weight: float | None = None

    def add(self, seen: Seen, event: Event, place: tuple[slice, ...]) -> None:
        """The failures of a part of the stage."""
        self._elements += int(event.hit.sum())
        self._rows[place] |= event.hit.any(-1)
        for index in event.hit.nonzero()[: _MOST_PLACES - len(self._places)].tolist():
            at = tuple(index)
            whole = tuple(i + corner for i, corner in zip(at, seen.corner, strict=True))
            self._places.append(Place(whole, float(seen.before[at]), float(seen.after[at])))
        if event.kind == "underflow" and seen.stage in _WEIGHTS:
            share = seen.before.where(event.hit, 0.0).sum(-1) / seen.before.sum(-1)
            self._weight = max(self._weight or 0.0, float(share.nan_to_num(0.0).max()))

    def failure(self, stage: str, kind: Kind, spread: tuple[Reach, ...]) -> Failure:
        """All of it, with how far it went; in a result it is there already."""
        rows = int(self._rows.sum())
        if stage in RESULTS and kind in _HARD:
            spread = (Reach(stage, self._elements, rows), *spread)
        return Failure(stage, kind, tuple(self._places), self._limit, self._elements, rows, spread, self._weight)
