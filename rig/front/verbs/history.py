"""The commands `rig history` and `rig query`: all nights that `rig run --history` has kept."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rig.front import options


@click.command()
@options.scenarios()
@options.history_dir()
@options.out(help="Write a page with small curves too.")
def history(*, scenarios: tuple[str, ...], history: Path, out: Path | None) -> None:
    """Show each scenario over all nights: its last result, when it changed, and which versions changed with it.

    SCENARIO may contain * and ?.
    """
    from rig.analysis.history.historypage import page_html
    from rig.analysis.history.trends import table, trends, turn_lines
    from rig.analysis.show import pages
    from rig.front.terminal import standard_output

    all_trends = trends(history, scenarios)
    if out:
        facts = {"history": history.name, "nights": str(max((trend.night_count for trend in all_trends), default=0))}
        pages.write(page_html(all_trends, facts), out)
    console = standard_output()
    console.print(table(all_trends))
    for line in turn_lines(all_trends):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if out:
        click.echo(f"page: {out}")


@click.command()
@click.argument("sql")
@options.history_dir()
@options.output_format(type=click.Choice(("text", "json")))
def query(*, sql: str, history: Path, wanted: str) -> None:
    """Ask the history in SQL; its tables are `scenarios` and `controls`."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from rig.analysis.history.nights import query_history
    from rig.front.terminal import standard_output

    columns, rows = query_history(history, sql)
    if wanted == "json":
        objects = [dict(zip(columns, row, strict=True)) for row in rows]
        click.echo(json.dumps(objects, indent=1, default=str))
        return
    table = Table(*map(escape, columns), box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    standard_output().print(table)
