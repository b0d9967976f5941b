"""Attention with the format of every stage chosen by a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, make_dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_type_hints

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from precision.backends.backend import Attention, Refused, backends
from precision.numerics.rounding import round_to
from precision.operands import Operands
from precision.spec import Spec
from precision.stages.backward import attend_backward
from precision.stages.forward import attend
from precision.stages.plan import BACKWARD_STAGES, Plan
from precision.stages.prepare import format_of, reason_against
from precision.stages.presets import PLANS, find_plan


class _Staged:
    """A named plan with the options that are given; its fields are made below, from those of Plan."""

    plan: str

    def __post_init__(self) -> None:
        _ = self.resolved  # raises UsageError when the options contradict each other

    @cached_property
    def resolved(self) -> Plan:
        """The plan to compute by."""
        chosen = {field.name: getattr(self, field.name) for field in fields(Plan)}
        return replace(find_plan(self.plan), **{name: value for name, value in chosen.items() if value is not None})

    @property
    def max_subtraction(self) -> bool:
        return self.resolved.max != "none"

    @contextmanager
    def prepare(self, x: Operands) -> Iterator[Attention]:
        if (reason := reason_against(self.resolved, x)) is not None:
            raise Refused(reason)
        yield partial(_Attend.apply, self.resolved, x, x.q, x.k, x.v)


# An option that is left out is None and follows the named plan, so a stage can be made exact again with fp64.
_OPTIONS = [(name, hint | None, None) for name, hint in get_type_hints(Plan, include_extras=True).items()]
Staged = make_dataclass(
    "Staged",
    [("plan", Literal[tuple(PLANS)], "exact"), *_OPTIONS],
    bases=(_Staged,),
    frozen=True,
    namespace={
        "__doc__": "Attention that rounds what a plan says, stage by stage, computed in fp64; precision/stages.",
        "__module__": __name__,
    },
)
backends.register("staged")(Staged)


class _Attend(Function):
    """The plan's forward and backward pass for autograd, in the dtype of the operands."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, x: Operands, *_: Tensor) -> Tensor:
        """_ is x.q, x.k and x.v, which autograd follows."""
        ctx.forward = attend(plan, x)
        ctx.format = format_of(x)
        return round_to(ctx.forward.out, ctx.format)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        found = attend_backward(ctx.forward, do)
        dq, dk, dv = (round_to(gradient, ctx.format) for gradient in (found.dq, found.dk, found.dv))
        return None, None, dq, dk, dv


def spell(plan: Plan) -> str:
    """The method whose out is that of the plan where no row is masked: the nearest named plan, and what differs."""
    without_effect = (*BACKWARD_STAGES, "dq_chunk", "grad_chunk", "grad_exp", "lse", "safe")
    forward = [field.name for field in fields(Plan) if field.name not in without_effect]

    def differing(name: str) -> dict[str, str]:
        chosen = {option: (getattr(plan, option), getattr(PLANS[name], option)) for option in forward}
        return {option: str(wanted).lower() for option, (wanted, named) in chosen.items() if wanted != named}

    nearest = min(PLANS, key=lambda name: len(differing(name)))
    return backends.canonical(Spec("staged", (("plan", nearest), *differing(nearest).items())))
