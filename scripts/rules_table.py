"""How many wrong kernels each error rule finds, and how many right ones it refuses: the table in reports/check.

    python -m scripts.rules_table [FOLDER]

Every rule sees the same kernels on the same problems, out and gradients. A pair of a kernel and a dtype counts as one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import seaborn
import torch
from matplotlib.figure import Figure
from torch import Tensor

import tests.kernels.right
import tests.kernels.wrong  # noqa: F401  # registers the kernels
from precision.checking.api import check
from precision.checking.kernel import Kernel
from precision.checking.problems import PROBLEMS, Call
from precision.checking.result import Verdict
from precision.checking.truth import Values, truth_of
from precision.report.theme import draw_svg
from scripts.other_rules import OTHER_RULES, Sample
from tests.kernels.catalogue import ALL, RIGHT, WRONG

OURS = "precision check"
CPU = torch.device("cpu")


def samples(kernel: Kernel, dtype: str) -> Iterator[Sample]:
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
        for name in values.tensors:
            if name in truth.values.tensors:
                yield Sample(
                    name,
                    dtype,
                    values[name].detach().double(),
                    truth.values[name],
                    truth.eager[name].detach().double(),
                    lengths.get(name, (shape.d_k, shape.q_len)),
                )


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


def judge(function: Callable[..., Tensor], dtype: str) -> dict[str, bool]:
    """Which rules flag the kernel."""
    flagged = {OURS: check(function, dtypes=(dtype,), device="cpu", level="quick").verdict is Verdict.FAIL}
    found = list(samples(Kernel.of(function), dtype))
    return flagged | {name: not all(rule(sample) for sample in found) for name, rule in OTHER_RULES.items()}


def measure() -> pd.DataFrame:
    """One line for each kernel and dtype: its kind, and for each rule whether it was flagged."""
    lines = []
    for wrong in WRONG:
        kind = wrong.function.__module__.rpartition(".")[2]
        lines += [{"kernel": wrong.name, "kind": kind, "dtype": d, **judge(wrong.function, d)} for d in wrong.dtypes]
    for right in RIGHT:
        lines += [{"kernel": right.__name__, "kind": "right", "dtype": d, **judge(right, d)} for d in ALL]
    return pd.DataFrame(lines)


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the wrong kernels that a rule flags, by kind and in all, and of the right ones."""
    rules = [OURS, *OTHER_RULES]
    wrong = frame[frame["kind"] != "right"]
    by_kind = wrong.groupby("kind")[rules].mean().T
    by_kind["all wrong"] = wrong[rules].mean()
    by_kind["right (false alarms)"] = frame[frame["kind"] == "right"][rules].mean()
    return by_kind.rename_axis("rule")


def paint(shares: pd.DataFrame, canvas: Figure) -> None:
    """Two bars a rule: found of the wrong, refused of the right."""
    long = (
        shares[["all wrong", "right (false alarms)"]]
        .mul(100)
        .reset_index()
        .melt("rule", var_name="kernels", value_name="%")
    )
    axes = canvas.subplots()
    seaborn.barplot(long, x="%", y="rule", hue="kernels", palette="colorblind", ax=axes)
    axes.set(xlabel="kernels that the rule flags, %", ylabel="", xlim=(0, 100))
    axes.legend(title="", loc="lower right")


def page(frame: pd.DataFrame, shares: pd.DataFrame) -> str:
    """The report as Markdown."""
    wrong, right = frame[frame["kind"] != "right"], frame[frame["kind"] == "right"]
    missed = wrong[~wrong[OURS]][["kernel", "dtype"]].agg(" in ".join, axis=1).tolist()
    percent = shares.mul(100).round(0).astype(int).astype(str) + " %"
    rules = "\n".join(f"- **{name}**: {(rule.__doc__ or '').strip()}" for name, rule in OTHER_RULES.items())
    return f"""# Error rules on the same kernels

{len(wrong)} pairs of a wrong kernel and a dtype in which it is wrong ({wrong["kernel"].nunique()} kernels, one
fault each), and {len(right)} of a right kernel and a dtype ({right["kernel"].nunique()} kernels). Each rule sees out,
dq, dk and dv on the same {sum(not p.beyond for p in PROBLEMS)} problems. `{OURS}` also calls a kernel again and in
other ways, so that it alone can see state and side effects.

![Share of kernels flagged by each rule](figures/rules.svg)

How to read it: a good rule has a long first bar and no second one.

{percent.to_markdown()}

Missed by `{OURS}`: {", ".join(missed) or "none"}.

## The rules

{rules}

Made by `python -m scripts.rules_table` with torch {torch.__version__.partition("+")[0]} on a CPU. Every pair is in
`kernels.csv`.
"""


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
