"""The report: one page that needs nothing else, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from .catalogue import PARTS, kit
from .json_report import as_json
from .observing import Told
from .pictures import legend, timeline
from .pool_acts import pool_acts
from .records import Records
from .running import Result, Verdict, span
from .words import STATES, asked, basis, change, saying

CHIPS = {
    "passed": "good", "failed": "bad", "not yet": "open", "not needed": "quiet", "not run": "quiet",
}  # fmt: skip
INTRO = {
    "steps": "The story that every team asks about first: own, borrow, give back, large shapes, "
    "misuse, and what everybody may see.",
    "resource portrait": "Is it known at every moment what each GPU does, or why it serves nobody?",
    "multi-tenant queue": "Is the line fair, and are its rules in people's hands?",
    "training": "Large, long work that can be interrupted if it is told before.",
    "inference": "Services that people rely on, beside batch work that fills the gaps.",
    "failure and recovery": "What breaks must not take anything with it.",
    "what people see": "What reaches a researcher's own screen.",
}


def write(verdict: Verdict, folder: Path) -> None:
    """Write ``report.html``, ``report.json`` and the scenarios, to be played again.

    Raises
    ------
    OSError
        Where the folder cannot be made or written to.
    """
    scenarios = folder / "scenarios"
    scenarios.mkdir(parents=True, exist_ok=True)
    for one in kit().iterdir():
        if one.name != "catalogue.yaml" and one.name.endswith(".yaml"):
            (scenarios / one.name).write_text(one.read_text("utf-8"), encoding="utf-8")
    text = json.dumps(as_json(verdict), indent=2, ensure_ascii=False)
    _put(folder / "report.json", text + "\n")
    _put(folder / "report.html", page(verdict))


def _put(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def page(verdict: Verdict) -> str:
    """The whole page."""
    style = (resources.files(__package__) / "style.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return "\n".join([
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Allotment: acceptance report</title><style>{style}</style></head><body><main>",
        _head(verdict), _reading(verdict), _lines(verdict), _overview(verdict),
        *(_part(verdict, part) for part in PARTS), "</main></body></html>",
    ]) + "\n"  # fmt: skip


def _head(verdict: Verdict) -> str:
    built = [r for r in verdict.results if r.item.mark == "must" and r.status != "not yet"]
    failed = [r for r in built if r.status == "failed"]
    missing = verdict.count("not yet", "must")
    crossed = sum(1 for line in verdict.lines if not line.holds)
    passed, whole = verdict.score
    if failed:
        first = f"{len(failed)} of {len(built)} built musts do not hold."
    else:
        first = f"All {len(built)} musts that are built hold."
    second = (
        "None of the three red lines is crossed." if not crossed
        else f"{crossed} of the three red lines are crossed."
    )  # fmt: skip
    return (
        "<h1>Sharing GPUs among teams: acceptance report</h1>"
        '<p class="lead">Allotment shares a pool of GPUs among teams. Each team owns a part, lends '
        "what it does not use, and gets it back when it asks. This report shows whether that "
        "holds, one case at a time, with the records of each.</p>"
        f'<div class="verdict {"good" if verdict.ok else "bad"}"><strong>{first}</strong> {second} '
        f"{missing} musts are not built yet and do not count as passed. Weighted score: {passed} "
        f"of {whole}, where what is missing counts as nothing.</div>"
    )


def _reading(verdict: Verdict) -> str:
    records = next((r.records for r in verdict.results if r.records is not None), None)
    teams = list(records.versions[0].policy.tenants) if records and records.versions else []
    if not teams:
        return _reading_live()
    return (
        "<h2>How to read this</h2>"
        "<p>Everything below was played on a made-up pool by the very functions that decide in a "
        "running system. Only the clock is not real: hours pass in moments, and two runs give the "
        "same result. The pool has two machines (a1, a2) with four large GPUs each, and one (s1) "
        "with four smaller ones for serving models. Three teams share it: vision, language and "
        "biology.</p>"
        "<dl><dt>guarantee</dt><dd>What a team owns. It gets it whenever it asks, within a short, "
        "known time.</dd><dt>borrow, lend</dt><dd>GPUs that an owner does not use run other "
        "teams' work meanwhile. A loan always has a lender, a rule and an end.</dd>"
        "<dt>lease</dt><dd>GPUs given to one person's session or job for a term.</dd>"
        "<dt>notice</dt><dd>The time between being told that GPUs go back and having to "
        "stop: 15 minutes here.</dd><dt>request</dt><dd>A place in the line. It keeps its age "
        "whatever happens. Requests are named after their team: vision-1 is vision's first.</dd>"
        "<dt>must, plus, not needed</dt><dd>How much a choice of platform should hang on it. A "
        "must that does not hold is a no.</dd>"
        "<dt>not yet</dt><dd>It depends on something that is not built. It never counts as "
        "passed.</dd></dl>"
        "<p>In the pictures time runs to the right. Each row is one GPU (machine/number) and "
        "shows who held it; below come those who waited, with the reason that they were "
        "given. Each case begins at midnight, so that 01:07 UTC in a sentence is 1 h 07 in a "
        "picture.</p>" + legend(teams)
    )


def _reading_live() -> str:
    return (
        "<h2>How to read this</h2><p>Everything below was asked of a running governor over its "
        "REST interface, with one person's token. What would disturb the work of others, or needs "
        "several people, was not run; it is shown by the same command without --live, on a "
        "made-up pool.</p>"
    )


def _lines(verdict: Verdict) -> str:
    rows = [
        (
            escape(line.title), _chip("passed" if line.holds else "failed",
                                      "not crossed" if line.holds else "crossed"),
            escape(line.looked_at),
            "<br>".join(escape(one) for one in line.crossed[:20]) or "nothing",
        )
        for line in verdict.lines
    ]  # fmt: skip
    return (
        "<h2>The three red lines</h2><p>Looked for in all that was recorded for this report. One "
        "of them crossed is a no, whatever else holds.</p>"
        + _table(("red line", "result", "looked at", "found"), rows)
    )


def _overview(verdict: Verdict) -> str:
    rows = [
        (
            f'<a href="#{r.item.id}">{escape(r.item.title)}</a>', escape(r.item.part),
            r.item.mark, str(r.item.weight), _chip(r.status),
        )
        for r in verdict.results
    ]  # fmt: skip
    return "<h2>All items</h2>" + _table(("item", "part", "mark", "weight", "result"), rows)


def _part(verdict: Verdict, part: str) -> str:
    results = [r for r in verdict.results if r.item.part == part]
    if not results:
        return ""
    title = "The six steps" if part == "steps" else part[0].upper() + part[1:]
    shown = "".join(_article(r, n) for n, r in enumerate(results, 1))
    return f"<h2>{escape(title)}</h2><p>{escape(INTRO[part])}</p>{shown}"


def _article(result: Result, number: int) -> str:
    item = result.item
    facts = [
        ("input", item.input), ("expected", item.expected), ("fails when", item.fails_when),
        ("not yet", item.not_yet),
    ]  # fmt: skip
    parts = [
        f'<article id="{item.id}"><header><h3>{number}. {escape(item.title)}</h3>',
        f'<span class="soft">{item.mark}, weight {item.weight}</span>{_chip(result.status)}',
        "</header><dl>",
        *(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts if text),
        "</dl>",
    ]
    if result.failures:
        parts.append("<h4>What does not hold</h4>" + _list(result.failures))
    if result.records is not None:
        parts += [_played(result, result.records), _repeat(result)]
    parts.append("</article>")
    return "".join(parts)


def _repeat(result: Result) -> str:
    checks = result.outcome.checks if result.outcome is not None else 0
    return (
        f'<p class="soft">Repeat it: <code>allotment-hub scenario scenarios/{result.item.scenario}'
        f".yaml</code> in the folder of this report. {checks} expectations were checked, and the "
        "rules that must always hold after every event.</p>"
    )


def _played(result: Result, records: Records) -> str:
    acts = pool_acts(result.outcome.scenario) if result.outcome is not None else []
    drawn = timeline(records, result.item.title, acts)
    parts = [f'<div class="scroll">{drawn}</div>']
    if acts:
        happened = [(span(at), escape(text)) for at, text in acts]
        parts.append("<h4>What happened to the pool</h4>" + _table(("at", "what"), happened))
    parts.append("<h4>Requests</h4>" + _requests(records))
    if result.told:
        rows = [_told_row(told, result.base) for told in result.told]
        parts.append(
            "<h4>What those who waited were told</h4>"
            + _table(("at", "request", "place", "reason", "expected", "at the latest"), rows)
        )
    if result.looks:
        seen = [
            (escape(look.user), escape(look.question), _chip("passed" if look.ok else "failed",
             "yes" if look.ok else "no"), escape(look.found))
            for look in result.looks
        ]  # fmt: skip
        parts.append("<h4>What was seen</h4>" + _table(("who", "question", "", "found"), seen))
    return "".join([*parts, _details(result, records)])


def _told_row(told: Told, base: int) -> tuple[str, ...]:
    helps = f'<br><span class="soft">Would start now: {escape(", or ".join(told.helps))}.</span>'
    return (
        span(told.at - base), escape(told.request), str(told.position or "–"),
        escape(told.text) + (helps if told.helps else ""),
        *("not known" if at is None else span(at - base) for at in (told.expected, told.latest)),
    )  # fmt: skip


def _requests(records: Records) -> str:
    rows = []
    for request in records.requests.values():
        leases = [one for one in records.leases.values() if one.request == request.id]
        waited = sum(b.ends - b.begins for b in records.waits if b.row == request.id)
        queue = (
            f"{leases[-1].pool} / {leases[-1].flavor}" if leases else request.ask.flavor or "any"
        )
        rows.append((
            escape(request.id), escape(f"{request.user}, {request.class_}"), escape(queue),
            escape(asked(request.ask)), span(request.asked_at - records.begins),
            span(waited) if waited else "at once",
            "<br>".join(dict.fromkeys(escape(basis(one)) for one in leases)) or "no GPUs",
            STATES[request.state],
        ))  # fmt: skip
    head = ("request", "who, class", "queue", "asked for", "at", "waited", "basis", "at the end")
    return _table(head, rows)


def _details(result: Result, records: Records) -> str:
    told = {(t.request, t.at): t.text for t in result.told}
    base = records.begins

    def sentence(event: Any) -> str:
        return saying(event, told.get((getattr(event.record, "id", ""), event.at), ""))

    quotas = [
        (span(q.at - base), escape(q.tenant), escape(f"{q.pool} / {q.flavor}"), escape(change(q)),
         escape(q.what))
        for q in records.quotas
    ]  # fmt: skip
    decided = [(span(e.at - base), escape(sentence(e))) for e in records.decisions]
    people = [
        (span(e.at - base), escape(e.actor.removeprefix("user:")), escape(sentence(e)))
        for e in records.human
    ]
    return (
        f"<details><summary>What people did ({len(people)})</summary>"
        + _table(("at", "who", "what"), people)
        + f"</details><details><summary>What was decided by rule ({len(decided)})</summary>"
        + _table(("at", "decision"), decided)
        + f"</details><details><summary>What it did to the teams' shares ({len(quotas)})</summary>"
        + _table(("at", "team", "queue", "change", "by"), quotas)
        + "</details>"
    )


def _chip(status: str, text: str = "") -> str:
    return f'<span class="chip {CHIPS[status]}">{escape(text or status)}</span>'


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


SHORT = 14
"""Characters up to which a cell is kept on one line."""


def _cell(cell: str) -> str:
    return f'<td class="n">{cell}</td>' if len(cell) <= SHORT else f"<td>{cell}</td>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{first}</tr>{body}</table></div>'
