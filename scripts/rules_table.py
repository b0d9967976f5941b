"""How many wrong kernels each error rule finds, and how many right ones it refuses: the table in reports/check.

    python -m scripts.rules_table [FOLDER]

Every rule sees the same kernels on the same problems, out and gradients. A pair of a kernel and a dtype counts as one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn
import torch
from matplotlib.figure import Figure
from torch import Tensor

import tests.kernels.right
import tests.kernels.wrong  # noqa: F401  # registers the kernels
from precision.checking.api import check
from precision.checking.problems import PROBLEMS, Call, CheckProblem
from precision.checking.problems.problem import draw_normal
from precision.checking.result import Verdict
from precision.checking.rule import judge
from precision.checking.truth import Values, truth_of, yardstick_of
from precision.kernel import Kernel
from precision.report.theme import draw_svg
from precision.torch_state import watch_torch_state
from scripts.other_rules import OTHER_RULES, Sample
from tests.kernels.catalogue import ALL, RIGHT, WRONG

OURS = "precision check"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Given:
    """One tensor that a kernel gave: on which problem, what our rule says of it, and what the other rules look at."""

    problem: CheckProblem
    passes_ours: bool
    sample: Sample


def run(kernel: Kernel, dtype: str) -> Iterator[Given]:
    """Every tensor that the kernel gives on the problems within the format; nothing where it refuses or raises."""
    for problem in PROBLEMS:
        if dtype not in problem.dtypes or problem.beyond:
            continue
        truth = truth_of(problem, dtype, 0, CPU)
        values = call(kernel, problem.make(dtype, 0, CPU), problem.backward)  # a fresh call: some kernels write to it
        if values is None:
            continue
        shape = problem.shape
        lengths = {"out": (shape.d_k, shape.kv_len), "dq": (shape.d_v, shape.kv_len)}
        for verdict in judge(values, truth, yardstick_of(problem, dtype, CPU)):
            name = verdict.tensor
            x, g, eager = (v[name].detach().double() for v in (values, truth.values, truth.eager))
            sample = Sample(name, dtype, x, g, eager, lengths.get(name, (shape.d_k, shape.q_len)))
            yield Given(problem, verdict.passed, sample)


def call(kernel: Kernel, made: Call, backward: bool) -> Values | None:
    """What the kernel gives, with its gradients if it has them; None when it raises."""
    if backward:
        try:
            return Values(*kernel.gradients(made.x, made.do))
        except Exception:  # a kernel may raise anything; without gradients its output still counts
            pass
    try:
        return Values(kernel.forward(made.x))
    except Exception:
        return None


def lines_of(function: Callable[..., Tensor], kind: str, dtype: str) -> list[dict[str, Any]]:
    """Which rules flag the kernel, on all problems and on the ordinary ones alone: independent N(0, 1) elements."""
    with watch_torch_state():
        found = list(run(Kernel.of(function), dtype))
    checked = check(function, dtypes=(dtype,), device="cpu", level="quick").verdict is Verdict.FAIL
    lines = []
    for problems in ("all", "ordinary"):
        given = [g for g in found if problems == "all" or g.problem.draw is draw_normal]
        ours = checked if problems == "all" else not all(g.passes_ours for g in given)
        others = {name: not all(rule(g.sample) for g in given) for name, rule in OTHER_RULES.items()}
        identity = {"kernel": function.__name__, "kind": kind, "dtype": dtype, "problems": problems}
        lines.append({**identity, OURS: ours, **others})
    return lines


def measure() -> pd.DataFrame:
    """Two lines for each kernel and dtype, of all problems and of the ordinary ones."""
    kernels = [(w.function, w.function.__module__.rpartition(".")[2], dtype) for w in WRONG for dtype in w.dtypes]
    kernels += [(function, "right", dtype) for function in RIGHT for dtype in ALL]
    return pd.DataFrame([line for kernel in kernels for line in lines_of(*kernel)])


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the wrong kernels that a rule flags, by kind and in all, and of the right ones."""
    rules = [OURS, *OTHER_RULES]
    on_all, ordinary = (frame[frame["problems"] == problems] for problems in ("all", "ordinary"))
    shares = on_all[on_all["kind"] != "right"].groupby("kind")[rules].mean().T
    for name, lines in (("", on_all), (", ordinary inputs", ordinary)):
        shares[f"all wrong{name}"] = lines[lines["kind"] != "right"][rules].mean()
        shares[f"right{name}"] = lines[lines["kind"] == "right"][rules].mean()
    return shares.rename_axis("rule")


def paint(shares: pd.DataFrame, canvas: Figure) -> None:
    """Two panels, all problems and ordinary ones, with two bars a rule: wrong kernels and right ones."""
    for axes, suffix in zip(canvas.subplots(1, 2, sharey=True), ("", ", ordinary inputs"), strict=True):
        names = {f"all wrong{suffix}": "wrong kernels", f"right{suffix}": "right kernels"}
        long = shares[list(names)].rename(columns=names).mul(100).reset_index()
        long = long.melt("rule", var_name="kernels", value_name="%")
        seaborn.barplot(long, x="%", y="rule", hue="kernels", palette="colorblind", ax=axes, legend=not suffix)
        axes.set(title="ordinary inputs" if suffix else "all problems", xlabel="flagged, %", ylabel="", xlim=(0, 100))
        if not suffix:
            handles, labels = axes.get_legend_handles_labels()
            axes.get_legend().remove()
            canvas.legend(handles, labels, loc="outside upper left", ncols=2)


def page(frame: pd.DataFrame, shares: pd.DataFrame) -> str:
    """The report as Markdown."""
    on_all = frame[frame["problems"] == "all"]
    wrong, right = on_all[on_all["kind"] != "right"], on_all[on_all["kind"] == "right"]
    missed = [f"{line.kernel} in {line.dtype}" for line in wrong[~wrong[OURS]].itertuples()]
    percent = shares.mul(100).round(0).astype(int).astype(str) + " %"
    rules = "\n".join(f"- **{name}**: {(rule.__doc__ or '').strip()}" for name, rule in OTHER_RULES.items())
    return f"""# Error rules on the same kernels

{len(wrong)} pairs of a wrong kernel and a dtype in which it is wrong ({wrong["kernel"].nunique()} kernels, one
fault each), and {len(right)} of a right kernel and a dtype ({right["kernel"].nunique()} kernels). Each rule sees out,
dq, dk and dv on the same problems, {_problems_of_a_dtype()} in a dtype. `{OURS}` also calls a kernel again and in other
ways, so that it alone can see state and side effects.

![Share of kernels flagged by each rule](figures/rules.svg)

How to read it: a good rule has a long first bar and no second one. Ordinary inputs are those problems on which q, k
and v are independent N(0, 1); the other problems have needles, exact weights, large and small values, and long sums,
for which the other rules were not made.

{percent.to_markdown()}

Missed by `{OURS}`: {", ".join(missed) or "none"}.

## The rules

{rules}

Made by `python -m scripts.rules_table` with torch {torch.__version__.partition("+")[0]} on a CPU. Every pair is in
`kernels.csv`.
"""


def _problems_of_a_dtype() -> str:
    counts = {sum(dtype in p.dtypes and not p.beyond for p in PROBLEMS) for dtype in ALL}
    return f"{min(counts)} to {max(counts)}"


def main() -> None:
    """Measure and write."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "reports/check")
    (out / "figures").mkdir(parents=True, exist_ok=True)
    frame = measure()
    shares = table(frame)
    frame.to_csv(out / "kernels.csv", index=False)
    (out / "figures" / "rules.svg").write_text(draw_svg(lambda canvas: paint(shares, canvas), 3.6), encoding="utf-8")
    (out / "report.md").write_text(page(frame, shares), encoding="utf-8")


if __name__ == "__main__":
    main()
