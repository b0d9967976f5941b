"""Tensors that a real model handed to SDPA, read from a capture file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from precision.errors import UsageError
from precision.inputs import capture_file
from precision.inputs.distribution import distributions
from precision.inputs.own_call import Origin
from precision.operands import Operands
from precision.spec import Spec


@distributions.register("captured")
@dataclass(frozen=True)
class Captured:
    """Call number `call` (in a configuration every call, if none is named) of all-MiniLM-L6-v2 or of a capture file."""

    call: Annotated[int, Field(ge=0)]
    file: str = "minilm"

    def operands(self, dtype: str) -> Operands:
        """The captured call in float64, whatever the dtype; dropout is left out."""
        loaded = capture_file.load_call(capture_file.resolve(self.file), self.call)
        mask = loaded.attn_mask
        if mask is not None and mask.is_floating_point():
            mask = mask.double()
        q, k, v = loaded.q.double(), loaded.k.double(), loaded.v.double()
        return Operands(q, k, v, mask, loaded.is_causal, loaded.scale)


def captured_origins(spec: Spec, dtypes: Sequence[str]) -> Iterator[Origin]:
    """The call that a spec names, or every call of the file when it names none; raises UsageError."""
    options = dict(spec.options)
    header = capture_file.read_header(capture_file.resolve(options.get("file", "minilm")))
    wanted = [options["call"]] if "call" in options else [str(index) for index in range(len(header.calls))]
    for index in wanted:
        inputs = Spec(spec.name, tuple(sorted({**options, "call": index}.items())))
        captured = distributions.build(inputs)
        assert isinstance(captured, Captured)
        if captured.call >= len(header.calls):
            raise UsageError(f"{inputs}: the capture holds calls 0 to {len(header.calls) - 1}")
        call = header.calls[captured.call]
        yield Origin(
            distributions.canonical(inputs),
            call.shape,
            tuple(dtypes),
            mask="none" if call.mask == "none" and not call.is_causal else "captured",
            scale="sqrt_dk" if call.scale is None else call.scale,
            digest=header.digest,
            source=call.name,
        )
