"""An explained kernel as a page: the answers, the plans that were compared, and for each dtype costs and failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from precision.experiments.write import MEASURED, Pages, write_pages
from precision.explain.attribution import Attribution
from precision.explain.bars import draw_attribution
from precision.explain.diagnosis import Diagnosis
from precision.explain.fingerprint import Fingerprint
from precision.numerics.failure import Failure
from precision.report.blocks import Field, Figure, Link, Report, Section, Table
from precision.sweep.environment import observe_environment

_MOST_PLANS = 5  # of a dtype


def write_explanation(found: Fingerprint, diagnoses: Sequence[Diagnosis], out: Path, command: str) -> Pages:
    """Write the pages into the folder `out`; `command` is what makes them again.

    Raises UsageError when the folder cannot be written.
    """
    frames = [
        diagnosis.attribution.frame.assign(dtype=diagnosis.problem.dtype)
        for diagnosis in diagnoses
        if isinstance(diagnosis.attribution, Attribution) and diagnosis.attribution.tensors
    ]
    return write_pages(build_page(found, diagnoses, command), pd.concat(frames) if frames else pd.DataFrame(), out)


def build_page(found: Fingerprint, diagnoses: Sequence[Diagnosis], command: str) -> Report:
    """The report of one kernel."""
    environment = observe_environment(torch.device("cpu"))
    return Report(
        title=f"{found.target}, explained",
        facts=(f"torch {environment['torch']}", str(environment["cpu"])),
        verdict=(*found.sentences, *(sentence for diagnosis in diagnoses for sentence in diagnosis.sentences)),
        command=command,
        sections=(_plans(found), *map(_section, diagnoses)),
    )


def _plans(found: Fingerprint) -> Section:
    fields = (
        Field("dtype", "text"), Field("rank", "text"), Field("plan", "text"), Field("bit-equal", "percent"),
        Field("relative error"), Field("method", "code"),
    )  # fmt: skip
    rows = tuple(
        (row.dtype, row.rank, row.plan, row.equal, row.rel_l2, row.method)
        for nearest in found.nearest
        for row in [row for row in found.rows if row.dtype == nearest.dtype][:_MOST_PLANS]
    )
    sentence = "A plan says what is rounded at each stage. The nearest gives the most output elements bit for bit."
    return Section("plans", "Which plan it behaves like", (sentence,), (Table("The nearest plans.", fields, rows),))


def _section(diagnosis: Diagnosis) -> Section:
    dtype = diagnosis.problem.dtype
    blocks: list[Figure | Table | Link] = []
    if isinstance(diagnosis.attribution, Attribution) and diagnosis.attribution.tensors:
        blocks += [draw_attribution(diagnosis.attribution, f"attribution-{dtype}"), *_costs(diagnosis.attribution)]
        blocks.append(Link(MEASURED, "Every contribution"))
    for caption, failures in (
        ("What fails in this kernel, inferred from exact scores and its output.", diagnosis.failures),
        ("What fails in the nearest plan, seen stage by stage.", diagnosis.plan_failures),
    ):
        if failures and not isinstance(failures, str):
            blocks.append(_failures(caption, failures))
    sentences = (f"{diagnosis.problem}.", *diagnosis.sentences)
    return Section(f"dtype-{dtype}", f"Costs and failures in {dtype}", sentences, tuple(blocks))


def _costs(found: Attribution) -> list[Table]:
    fields = (
        Field("stage", "text"), Field("rms, alone"), Field("max, alone"), Field("rms, all but it"),
        Field("max, all but it"), Field("share (Shapley)", "percent"), Field("standard error", "percent"),
    )  # fmt: skip
    tables = []
    for tensor in found.tensors:
        total = found.total[tensor]
        rows = tuple(
            (
                c.group, c.alone.rms, c.alone.max, c.without.rms, c.without.max, c.share,
                c.share_error,
            )
            for c in found.of(tensor)
        )  # fmt: skip
        caption = (
            f"Contributions to the {found.error} error of {tensor}, {total.rms:.3g} rms and {total.max:.3g} at most. "
            f"The stages alone leave {found.closure(tensor):+.1%} of the mean square."
        )
        tables.append(Table(caption, fields, rows, collapsed=tensor != "out"))
    return tables


def _failures(caption: str, failures: Sequence[Failure]) -> Table:
    fields = (
        Field("stage", "text"), Field("kind", "text"), Field("first", "code"), Field("values", "count"),
        Field("rows", "count"), Field("weight lost, worst row"), Field("not finite after it", "text"),
        Field("wrong rows", "count"),
    )  # fmt: skip
    rows = tuple(
        (
            f.stage, f.kind, str(f), f.elements, f.rows, f.weight,
            "; ".join(f"{reach.stage} {reach.elements} in {reach.rows} rows" for reach in f.spread), f.wrong,
        )
        for f in failures
    )  # fmt: skip
    return Table(caption, fields, rows)
