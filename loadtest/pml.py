#!/usr/bin/env python3
"""A workload of workloads.py as PML: one schema, and a prompt for each request.

A module's text ends in a line break, and PML keeps one at an element's end; the text of a request follows its imports directly.
So the tokens of a PML prompt are those of the plain one (`--check` compares them through a running server).

Usage:
  pml.py w1                          print the schema of w1 and its first prompt
  pml.py w1 --check URL              register it there and compare each prompt's text with the plain one
"""

import argparse
import json
import sys
from xml.sax.saxutils import escape, quoteattr

import workloads
from client import Client

ROLES = ("system", "user", "assistant")


def schema_pml(load):
    lines = [f"<schema name={quoteattr(schema_name(load))}>"]
    for slot in load["schema"]["layout"]:
        if "union" in slot:
            members = [f"    {module_pml(load, name)}" for name in slot["union"]]
            lines += ["  <union>", *members, "  </union>"]
        else:
            lines.append(f"  {module_pml(load, slot['module'])}")
    return "\n".join([*lines, "</schema>", ""])


def module_pml(load, name):
    return f"<module name={quoteattr(element_name(name))}>{escape(load['modules'][name])}</module>"


def prompt_pml(load, request):
    imports = "".join(f"<{element_name(name)}/>" for name in request["modules"])
    return f"<prompt schema={quoteattr(schema_name(load))}>{imports}{escape(request['text'])}</prompt>"


def element_name(name):
    """A module is imported by an element of its name, so it cannot be called as PML's own elements are."""
    return f"{name}_text" if name in ROLES else name


def schema_name(load):
    return load["schema"]["name"]


def in_schema_order(load, request):
    """The plain prompt as PML places it: modules stand where the schema has them, not in the order of the imports."""
    order = [name for slot in load["schema"]["layout"] for name in slot.get("union", [slot.get("module")])]
    chosen = set(request["modules"])
    return "".join(load["modules"][name] for name in order if name in chosen) + request["text"]


def check(load, url):
    """Exit unless the server sees exactly the text that the plain prompts have."""
    client = Client(url)
    client.register(schema_pml(load))
    for request in load["requests"]:
        seen = client.call(
            "POST", "/generate?stream=false&echo=true&max_tokens=1&temperature=0", prompt_pml(load, request), "application/xml"
        )
        prompt = json.loads(seen)["prompt_text"]
        if prompt != in_schema_order(load, request):
            sys.exit(f"{request['id']}: the server's prompt is not the plain one:\n{prompt!r}")
    print(f"{load['workload']}: {len(load['requests'])} prompts are the same as plain text", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=workloads.WORKLOADS)
    parser.add_argument("--check", metavar="URL", help="a running server")
    args = parser.parse_args()
    load = workloads.WORKLOADS[args.workload]()
    if args.check:
        check(load, args.check)
    else:
        print(schema_pml(load) + prompt_pml(load, load["requests"][0]))


if __name__ == "__main__":
    main()
