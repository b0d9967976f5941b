"""From the text `inputs` of a configuration to what makes the tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from precision.inputs.captured import captured_origins
from precision.inputs.distribution import Distribution, distributions
from precision.inputs.own_call import Origin, OwnCall
from precision.inputs.zoo import case_spec, zoo_origins
from precision.spec import Spec
from precision.zoo.case import zoo

_SHAPE = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "d_k", "d_v", "preset")


@dataclass(frozen=True)
class Family:
    """Inputs that bring their own call: how their calls are listed, and which keys of a sweep they fix."""

    origins: Callable[[Spec, Sequence[str]], Iterator[Origin]]
    fixes: tuple[str, ...]


OWN_CALLS = {
    "captured": Family(captured_origins, _SHAPE),
    "zoo": Family(zoo_origins, (*_SHAPE, "mask", "scale")),
}


def family_of(spec: Spec) -> str:
    """The first part of the name: `zoo` of `zoo/masked-row`."""
    return spec.name.partition("/")[0]


def asked_of(text: str) -> str:
    """The derivative that inputs ask for beside the output, a key of DERIVATIVES in backends; mostly none."""
    return getattr(build_inputs(text), "asks", "")


def build_inputs(text: str) -> Distribution | OwnCall:
    """The inputs that a spec describes; raises UsageError on an unknown name, option or value."""
    spec = Spec.parse(text)
    return zoo.build(case_spec(spec)) if family_of(spec) == "zoo" else distributions.build(spec)
