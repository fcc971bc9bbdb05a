#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/jinja_golden.json: what Jinja2 makes of small templates, or what it raises.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6 markupsafe==3.0.3
    venv/bin/python tests/reference/make_jinja_golden.py

The environment is that of transformers: the immutable sandbox, trim_blocks, lstrip_blocks, loop controls, tojson as
json.dumps(ensure_ascii=False), and {% generation %}, whose spans are kept as bytes of the output.
"""
import copy
import datetime
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CLOCK = datetime.datetime(2025, 3, 9, 14, 5, 7)
OPEN, CLOSE = "\ue000", "\ue001"  # around what a generation block makes; not used by the templates


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return OPEN + caller() + CLOSE


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = CLOCK.strftime
    return env


CONTEXT = {
    "name": "World",
    "text": "Zürich <b>“q”</b> ǅ ß ﬁ İ ΑΣ x",
    "emoji": "a😀b",
    "empty": "",
    "spaces": "\t  two\u3000words \n",
    "lines": "one\ntwo\r\nthree\n\nlast",
    "quote": "it's",
    "both": "'\"",
    "csv": "a,b,,c",
    "zero": 0,
    "n": 7,
    "neg": -7,
    "big": 9007199254740993,
    "pi": 3.25,
    "small": 1e-7,
    "large": 1e16,
    "tiny": 5e-324,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "mixed": [1, "a", None, True, 1.0, {"k": [1]}],
    "nested": {"a": {"b": [10, {"c": "deep"}]}, "items": "shadowed", "Z": 1, "y": None},
    "people": [
        {"name": "Ann", "age": 31, "tags": ["x"]},
        {"name": "bob", "age": 4},
        {"name": "Cid", "age": 31, "tags": []},
    ],
    "messages": [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Hi é"},
        {"role": "assistant", "content": "Yo 😀", "tool_calls": [{"name": "f", "arguments": {"x": 1.0, "é": None}}]},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Ciao"},
    ],
}


def cases():
    from jinja_cases import CASES  # beside this file

    for group, templates in CASES:
        for template in templates:
            yield group, template


def render(env, template):
    try:
        out = env.from_string(template).render(**copy.deepcopy(CONTEXT))  # `indent` grows a list
    except jinja2.TemplateSyntaxError as e:
        return {"syntax_error": str(e.message)}
    except Exception as e:  # what the template does wrong is what the test is about
        return {"error": str(e), "kind": type(e).__name__}
    text, spans, opened = "", [], []
    for c in out:
        if c == OPEN:
            opened.append(len(text.encode()))
        elif c == CLOSE:
            begin = opened.pop()
            if not opened:
                spans.append([begin, len(text.encode())])
        else:
            text += c
    return {"text": text, "generation": spans} if spans else {"text": text}


def main():
    assert jinja2.__version__ == "3.1.6", jinja2.__version__
    env = environment()
    rows = [{"group": g, "template": t, **render(env, t)} for g, t in cases()]
    path = os.path.join(os.path.dirname(__file__), "..", "golden", "jinja_golden.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"clock": "%s",\n"context": %s,\n"cases": [\n' % (CLOCK.isoformat(), json.dumps(CONTEXT, ensure_ascii=False)))
        f.write(",\n".join(json.dumps(r, ensure_ascii=False) for r in rows))
        f.write("\n]}\n")
    print(len(rows), "cases,", sum("text" not in r for r in rows), "of them errors")


if __name__ == "__main__":
    main()
