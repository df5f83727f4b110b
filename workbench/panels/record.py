"""What a notebook keeps of a panel: the form as filled in, the call as code, and the result.

It needs no kernel and no widget, and holds no secret of a launch line: a notebook is handed on. While the
panel is alive the form and the code are seen in its widgets, so a style sheet hides them here; once the
kernel has gone it hides the widgets' place instead, which would say "model not found".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.display.html import code_lines, escape, prose, sign
from workbench.errors import WorkbenchError
from workbench.panels.session import FORMS, Ended, Session
from workbench.secret_shapes import without_secrets

if TYPE_CHECKING:
    from workbench.panels.forms import Form, Values

# In JupyterLab and Notebook 7 the two outputs of the cell follow each other.
_OUTPUT = ".jp-OutputArea-child"
_CODE = "font-family:monospace;font-size:13px;margin:0 0 12px;padding:0;white-space:pre-wrap;background:none"
_CELL = "padding:1px 16px 1px 0;text-align:left;vertical-align:top;overflow-wrap:anywhere"


def bundle(session: Session) -> dict[str, Any]:
    """Return the record as a MIME bundle: HTML, and text."""
    if not session.ended:
        html, text = "".join(_of_form(session)), "\n".join(_text_of_form(session))
    else:
        html = "".join(
            f'<div class="wb-record-job" data-job="{name}">{"".join(_of_runs(ended))}</div>'
            for name, ended in session.ended.items()
        )
        text = "\n".join(line for ended in session.ended.values() for line in _text_of_runs(ended))
    return {
        "text/html": f'<div class="wb-record"><style>{_style()}</style>{html}</div>',
        "text/plain": text,
    }


def _style() -> str:
    """Return what hides the record's form while the widgets live, and the widgets' place once they do not."""
    # The newest result next to the buttons that made it; on paper they follow each other.
    jobs = "".join(
        f"{_OUTPUT}:has(.wb-panel-{name}) + {_OUTPUT} [data-job]:not([data-job={name}])"
        "{display:none}"
        for name in FORMS
    )
    return (
        f"{_OUTPUT}:has(.wb-panel) + {_OUTPUT} .wb-record-form{{display:none}}{jobs}"
        f"{_OUTPUT}:has(.wb-panel) + {_OUTPUT} .wb-record-job{{display:flex;flex-direction:column-reverse}}"
        f"{_OUTPUT}:not(:has(.wb-panel)):has(+ {_OUTPUT} .wb-record){{display:none}}"
    )


def _of_form(session: Session) -> Iterator[str]:
    yield '<div class="wb-record-form">'
    yield _heading(session.form, "not run yet")
    yield _fields(session.form, session.values[session.form.name])
    with contextlib.suppress(WorkbenchError):
        yield _code(session.call().code())
    yield "</div>"


def _of_runs(ended: tuple[Ended, ...]) -> Iterator[str]:
    for one in ended:
        yield "<div>"
        if not one.call.is_given:
            yield '<div class="wb-record-form">'
            if one is ended[0]:
                yield _heading(one.form, "")
                yield _fields(one.form, one.values)
            yield _code(one.call.code())
            yield "</div>"
        yield from _of_run(one)
        yield "</div>"


def _of_run(one: Ended) -> Iterator[str]:
    if one.status.error is not None:
        yield error_html(one.status.error)
    elif one.result is None:
        yield f"<p>{escape(one.status.sentence())}</p>"
    else:
        if one.status.early:
            early = escape(one.status.sentence())
            yield f'<p class="wb-record-form" style="margin:0 0 8px">{early}</p>'
        yield f'<div style="margin:0 0 16px">{_shown(one)["text/html"]}</div>'


def _shown(one: Ended) -> dict[str, Any]:
    assert one.result is not None
    found = one.result._repr_mimebundle_(include=("text/html", "text/plain"))
    data: dict[str, Any] = found[0] if isinstance(found, tuple) else found
    return data


def _heading(form: Form, remark: str) -> str:
    after = f' <span style="opacity:0.75">({escape(remark)})</span>' if remark else ""
    return f'<p style="font-weight:600;margin:0 0 4px">{escape(form.label)}{after}</p>'


def chosen(form: Form, values: Values) -> list[tuple[str, str]]:
    """Return the fields that hold something, as label and text."""
    found = []
    unused = form.unused(values)
    for field in form.fields:
        value = values.get(field.name)
        if value in (None, "", ()) or field.name in unused:
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        found.append((field.label, without_secrets(text)))
    return found


def _fields(form: Form, values: Values) -> str:
    cells = f"<td style='{_CELL};opacity:0.75'>{{}}</td><td style='{_CELL}'>{{}}</td>"
    rows = "".join(
        f"<tr>{cells.format(escape(label), escape(text))}</tr>"
        for label, text in chosen(form, values)
    )
    return f'<table style="border-collapse:collapse;margin:0 0 8px">{rows}</table>' if rows else ""


def _code(code: str) -> str:
    return f'<pre style="{_CODE}">{code_lines(without_secrets(code))}</pre>'


def error_html(error: WorkbenchError) -> str:
    """Return an error as a readable message: what happened, why, and what to do next."""
    parts = [f'<p style="font-weight:600;margin:0 0 4px">{sign("error")} {_lines(error.what)}</p>']
    if error.why:
        parts.append(f'<p style="margin:0 0 4px">{_lines(error.why)}</p>')
    if error.next_step:
        parts.append(f'<p style="margin:0"><b>Next:</b> {_lines(error.next_step)}</p>')
    return f'<div class="wb-error" role="alert" style="margin:0 0 12px">{"".join(parts)}</div>'


def _lines(text: str) -> str:
    return "<br>".join(prose(line) for line in text.split("\n"))


def _text_of_form(session: Session) -> Iterator[str]:
    yield f"{session.form.label} (not run yet)"
    yield from _text_fields(session.form, session.values[session.form.name])
    with contextlib.suppress(WorkbenchError):
        yield without_secrets(session.call().code())


def _text_of_runs(ended: tuple[Ended, ...]) -> Iterator[str]:
    for one in ended:
        if not one.call.is_given:
            if one is ended[0]:
                yield one.form.label
                yield from _text_fields(one.form, one.values)
            yield without_secrets(one.call.code())
            yield ""
        yield from _text_of_run(one)


def _text_of_run(one: Ended) -> Iterator[str]:
    if one.status.error is not None:
        yield str(one.status.error)
    elif one.result is None:
        yield one.status.sentence()
    else:
        if one.status.early:
            yield one.status.sentence()
        yield _shown(one)["text/plain"]
    yield ""


def _text_fields(form: Form, values: Values) -> Iterator[str]:
    shown = chosen(form, values)
    widest = max((len(label) for label, _ in shown), default=0)
    for label, text in shown:
        yield f"  {label.ljust(widest)}  {text}"
