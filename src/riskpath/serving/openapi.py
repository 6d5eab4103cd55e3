"""The OpenAPI document of a server, and a page that shows it without anything from other servers."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from riskpath.envs.plain_spaces import parts_of
from riskpath.version import __version__

MOST_NAMES = 100
"""The largest number of names of states or actions that are listed."""
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
code,pre{font:14px/1.4 ui-monospace,monospace;background:#f4f4f4;border-radius:4px}code{padding:.1em .3em}
pre{padding:.8em;overflow-x:auto}td,th{text-align:left;padding:.3em .8em .3em 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}code,pre{background:#282828}a{color:#8bf}}"""


def document(policies: Mapping[str, dict[str, Any]], longest: int) -> dict[str, Any]:
    """Return the OpenAPI document, from the policies' descriptions by name and the longest body in bytes."""
    paths: dict[str, Any] = {}
    for path, (summary, more) in {
        "/health": ("Answer as long as the process runs", {}),
        "/ready": ("Answer 200 when every policy is compiled", {"503": _answer("Not ready yet", {"type": "object"})}),
        "/metrics": ("Return the counters in the text format of Prometheus", {}),
        "/policies": ("List the policies", {}),
    }.items():
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "OK"}, **more}}}
    for name, about in policies.items():
        paths |= _policy_paths(name, about)
    about = f"Policies as a service. A body has at most {longest:,} bytes. Errors are {{'error': one line}}."
    return {
        "openapi": "3.1.0",
        "info": {"title": "riskpath serve", "version": __version__, "description": about},
        "paths": paths,
    }


def _policy_paths(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """Return the operations of one policy."""
    what = f"{about['agent']} for {about['risk']} on {about['environment']}"
    action = {"action": _action_schema(about), "step": {"type": "integer"}}
    begun = {"type": "object", "properties": {"episode": {"type": "string"}, **action}}
    root, wrong = f"/policies/{name}", _answer("What is wrong, in one line", ERROR)
    key = {"name": "episode", "in": "path", "required": True, "schema": {"type": "string"}}
    errors = dict.fromkeys(("400", "404", "408", "409", "413", "503"), wrong)
    ended = {"204": {"description": "Ended"}, "404": wrong, "409": wrong}
    acted = {"200": _answer("The action", {"type": "object", "properties": action}), **errors}
    return {
        root: {"get": {"summary": f"Describe {what}", "responses": {"200": {"description": "OK"}}}},
        f"{root}/episodes": {
            "post": {
                "summary": f"Begin an episode of {what}",
                "requestBody": _request(about, ()),
                "responses": {"201": _answer("The episode and its first action", begun), **errors},
            }
        },
        f"{root}/episodes/{{episode}}": {
            "parameters": [key],
            "post": {
                "summary": "Act in the next step of an episode",
                "requestBody": _request(about, ("reward",) if about["needs_rewards"] else ()),
                "responses": acted,
            },
            "delete": {"summary": "End an episode", "responses": ended},
        },
    }


def _request(about: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "observation": _observation_schema(about),
        "reward": {"type": "number", "description": "The reward of the previous step."},
        "step": {"type": "integer", "description": "The number of this step: a repeated request changes nothing."},
    }
    if about["num_actions"]:
        properties["mask"] = {
            **_array([about["num_actions"]], {"enum": [0, 1, True, False]}),
            "description": "Which actions are available.",
        }
    needed = ["observation", *required]
    schema = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _observation_schema(about: dict[str, Any]) -> dict[str, Any]:
    if about["states"]:
        return _names(about["states"])
    if about["num_states"] is not None:
        first = about["first_state"]
        return {"type": "integer", "minimum": first, "maximum": first + about["num_states"] - 1}
    if about.get("observation_space"):
        return _space_schema(about["observation_space"])
    return _array(about["observation"]["shape"], {"type": "number"})


def _action_schema(about: dict[str, Any]) -> dict[str, Any]:
    if about["actions"]:
        return _names(about["actions"])
    if about.get("action_space"):
        return _space_schema(about["action_space"])
    return {"type": "integer"} if about["num_actions"] else {"type": "array"}


def _space_schema(space: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an element of a Gymnasium space (`plain_spaces.py`)."""
    if "parts" in space:
        parts = {name: _space_schema(part) for name, part in parts_of(space)}
        if space["space"] == "Dict":
            return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
        return {"type": "array", "prefixItems": list(parts.values()), "minItems": len(parts), "maxItems": len(parts)}
    if "sizes" not in space:
        return _array(space["shape"], {"type": "number"})
    highest = [first + size - 1 for first, size in zip(space["start"], space["sizes"], strict=True)]
    return _array(space["shape"], {"type": "integer", "minimum": min(space["start"]), "maximum": max(highest)})


def _names(names: list[Any]) -> dict[str, Any]:
    return {"enum": names} if len(names) <= MOST_NAMES else {"description": f"One of {len(names):,} names"}


def _array(shape: list[int], item: dict[str, Any]) -> dict[str, Any]:
    for size in reversed(shape):
        item = {"type": "array", "items": item, "minItems": size, "maxItems": size}
    return item


def _answer(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def page(about: dict[str, Any]) -> str:
    """Return a page that shows the operations of an OpenAPI document."""
    parts = []
    for path, item in about["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            parts.append(f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation['summary'])}</p>")
            if body := operation.get("requestBody"):
                schema = body["content"]["application/json"]["schema"]
                needed, fields = schema["required"], schema["properties"]
                rows = "".join(
                    f"<tr><td><code>{escape(field)}</code></td><td>{'required' if field in needed else ''}</td>"
                    f"<td><code>{escape(json.dumps(one, ensure_ascii=False)[:300])}</code></td></tr>"
                    for field, one in fields.items()
                )
                parts.append(f"<table><tr><th>field</th><th></th><th>schema</th></tr>{rows}</table>")
    info = about["info"]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{info['title']}</title><style>{STYLE}</style><h1>{info['title']} {info['version']}</h1>"
        f"<p>{escape(info['description'])} <a href='openapi.json'>openapi.json</a> is for programs.</p>"
        f"{''.join(parts)}</html>"
    )
