"""`steplane calibrate`: a price list from measurements on this machine.

The measuring is done by `python -m replica.calibrate`, in a process and if need be with a Python of its own: the
engine's, whose grammar backend is the one that counts. The two talk by a file of measurements and lines of progress.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import gateway
from gateway.cli.failure import CliError
from gateway.control.costmodel import read_cost_model, write_cost_model
from gateway.hookcost.fit import Fit, Quality, fit, updated
from gateway.hookcost.prices import CostModelError


def run(
    backend: str, tokenizer: Path, schemas: Path | None, out: Path, python: Path | None, cost_model: Path | None
) -> None:
    """Measure, fit, write and report. Raises CliError when any of it can't be done."""
    if not out.absolute().parent.is_dir():
        raise CliError(f"--out {out}: there is no folder {out.absolute().parent}")
    try:
        data, model = read_cost_model(cost_model)
        old = model.backend(backend)
    except (OSError, CostModelError) as error:
        raise CliError(f"can't use the price list to start from: {error}") from None
    head, rows = _measured(backend, tokenizer, schemas, python)
    try:
        found = fit(head, rows, old)
    except CostModelError as error:
        raise CliError(f"can't fit prices to the measurements: {error}") from None
    origin = f"Measured by `steplane calibrate` on {backend} {found.version}, {found.trained + found.tested} schemas."
    try:
        write_cost_model(out, updated(data, found), origin)
    except OSError as error:
        raise CliError(f"can't write {out}: {error.strerror or error}") from None
    typer.echo(_report(backend, found, out))


def _measured(
    backend: str, tokenizer: Path, schemas: Path | None, python: Path | None
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The first line of the measurements, and the others."""
    with TemporaryDirectory(prefix="steplane-calibrate-") as name:
        folder = Path(name)
        # Only this package is lent to the engine's Python: ours would stand before the engine's own otherwise.
        package = Path(gateway.__file__).resolve().parent.parent / "replica"
        (folder / "lent").mkdir()
        (folder / "lent" / "replica").symlink_to(package)
        measurements, complaints = folder / "measurements.ndjson", folder / "stderr"
        command = [str(python or sys.executable), "-m", "replica.calibrate", f"--grammar-backend={backend}"]
        command += [f"--tokenizer={tokenizer.absolute()}", f"--out={measurements}"]
        command += [f"--schemas={schemas.absolute()}"] if schemas is not None else []
        code = _watched(command, folder / "lent", complaints)
        if code:
            said = complaints.read_text(errors="replace").strip().rpartition("\n")[2] or f"ended with exit code {code}"
            raise CliError(f"can't measure: {said.removeprefix('calibrate: ')}")
        head, *rows = [orjson.loads(line) for line in measurements.read_bytes().splitlines()]
        return head, rows


def _watched(command: list[str], lent: Path, complaints: Path) -> int:
    """Runs the measuring process to its end behind a progress bar; its exit code."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}", markup=False))
    console = Console(stderr=True)
    try:
        with (
            complaints.open("wb") as errors,
            Progress(*columns, console=console, disable=not console.is_terminal) as progress,
            subprocess.Popen(  # noqa: S603 - the Python that the user named
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=_environment(lent)
            ) as process,
        ):
            task = progress.add_task("", total=None, now="reading the tokenizer")
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    event = orjson.loads(line)
                    progress.update(task, completed=event["done"], total=event["total"], now=event["now"])
            except BaseException:
                process.terminate()
                raise
            return process.wait()
    except OSError as error:
        raise CliError(f"can't start {command[0]}: {error.strerror or error}") from None


def _environment(lent: Path) -> dict[str, str]:
    searched = [str(lent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(searched)}


def _report(backend: str, found: Fit, out: Path) -> str:
    kind = "of your schemas" if found.of_given else "of the made-up schemas (give --schemas to test on your own)"
    refused = f"; {backend} refused {found.refused}" if found.refused else ""
    return "\n".join(
        (
            f"fitted to {found.trained} measurements on {backend} {found.version}{refused}",
            f"tested on {found.tested} {kind} that the fit did not see:",
            f"  prices before  {_quality(found.before)}",
            f"  prices now     {_quality(found.after)}",
            f"written to {out}; to use it:",
            f"  hookcost: {{grammar_backend: {backend}, cost_model: {out.name}}}",
        )
    )


def _quality(quality: Quality) -> str:
    return (
        f"compile time off by a factor of {quality.compile_error:.2f} (median), worst step by "
        f"{quality.step_error:.2f}, rank correlation {quality.compile_rank:.2f}"
    )
