"""Rows as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from precision.errors import UsageError


def export_frame(frame: pd.DataFrame, file: Path) -> None:
    """Write a frame as Parquet or CSV, by the file's suffix; raises UsageError when that cannot be done."""
    try:
        if file.suffix == ".csv":
            frame.to_csv(file, index=False)
        elif file.suffix == ".parquet":
            frame.to_parquet(file, index=False)
        else:
            raise UsageError(f"{str(file)!r} ends in neither .parquet nor .csv; name the file so")
    except ImportError:
        raise UsageError("Parquet needs pyarrow; pip install 'attention-precision[parquet]', or export .csv") from None
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be written: {error.strerror or error}") from None
