"""Which module of a model is running: the names of captured calls."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

from torch.nn import Module
from torch.nn.modules import module as hooks
from torch.utils.hooks import RemovableHandle


class ModuleNames:
    """A context in which `next_name` says where in the model a call happens.

    A path is relative to `model`, or else to the outermost module that runs. The hooks watch every module and are
    gone when the context ends, whatever ended it.
    """

    def __init__(self, model: Module | None = None) -> None:
        self._paths: dict[Module, str] = {}
        self._running: list[Module] = []
        self._handles: list[RemovableHandle] = []
        self._used: Counter[str] = Counter()
        self._calls = 0
        if model is not None:
            self._learn(model)

    def __enter__(self) -> ModuleNames:
        self._handles.append(hooks.register_module_forward_pre_hook(self._begin))
        self._handles.append(hooks.register_module_forward_hook(self._end, always_call=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def next_name(self) -> str:
        """The path of the module that runs, `call-N` outside of any; the second call there ends in `#2`."""
        inside = next((self._paths[module] for module in reversed(self._running) if module in self._paths), None)
        name = f"call-{self._calls}" if inside is None else inside
        self._calls += 1
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name}#{self._used[name]}"

    def _learn(self, root: Module) -> None:
        for path, module in root.named_modules():
            self._paths.setdefault(module, path or type(root).__name__)

    def _begin(self, module: Module, args: Any) -> None:
        if not self._running and module not in self._paths:
            self._learn(module)
        self._running.append(module)

    def _end(self, module: Module, args: Any, out: Any) -> None:
        self._running.pop()
