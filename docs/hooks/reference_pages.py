"""The reference, written from the code: commands, settings, recipes, the HTTP API and the Python API.

`PAGES` names each page with the function that writes it.
"""

import argparse
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import headwise
from headwise.cli import COMMANDS, Command, command_parser
from headwise.cli.commands.settings import allowed_values, meaning_of
from headwise.config.settings import RECIPES, SETTINGS
from headwise.models.kinds import KINDS, TRAINED
from headwise.models.model import METHODS, Model
from headwise.serve.openapi import openapi_document
from headwise.serve.parameters import RequestLimits

GENERATED = "<!-- Generated from the code. -->"
SECTIONS = {
    "model": "the network, by architecture",
    "data": "corpus and tokenizer, by task",
    "train": "optimisation, validation and checkpoints",
    "decode": "search and sampling",
}


def escaped(text: str) -> str:
    """Text as a cell of a table in Markdown, with `code` kept.

    >>> escaped("a|b of `c|d` in [model]")
    'a&#124;b of `c|d` in &#91;model&#93;'
    """
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"[|<>*_\[\]]", _entity, part) for part in parts)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def code(text: Any) -> str:
    return f"`{text}`" if str(text) else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"


# Commands -------------------------------------------------------------------------------------------------------------


def command_index() -> str:
    """All commands, by group."""
    parts = [
        f"## {group.capitalize()}\n\n" + table(("Command", "Use"), [_index_row(group, command) for command in commands])
        for group, commands in COMMANDS.items()
    ]
    shared = "`headwise COMMAND --help` shows the options of a command; `--debug` shows the traceback of an error."
    return "\n".join(["# Commands\n", GENERATED, "", shared, "", *parts])


def _index_row(group: str, command: Command) -> tuple[str, str]:
    return f"[`{command.name}`]({group_page(group)}#{command.name})", escaped(command.help)


def group_page(group: str) -> str:
    return f"{group.replace(' ', '-')}.md"


def commands_of(group: str) -> str:
    """The commands of a group with all their options."""
    commands = "\n".join(map(command_text, COMMANDS[group]))
    return f"# Commands: {group}\n\n{GENERATED}\n\n{commands}"


def command_text(command: Command) -> str:
    """A command: usage, example, and a table for every group of options."""
    parser = command_parser(command.name)
    groups = [(group.title or "", group.description, _shown(group._group_actions)) for group in parser._action_groups]
    tables = "\n".join(_options_table(parser, *group) for group in groups if any(group[1:]))
    about = (parser.description or command.help).replace("\n", "\n\n")
    example = f"{_block(parser.epilog.strip())}\n" if parser.epilog else ""
    return f"## {command.name} {{ #{command.name} }}\n\n{escaped(about)}\n\n{usage(parser)}\n{example}{tables}"


def _shown(actions: Sequence[argparse.Action]) -> list[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._VersionAction)
    return [action for action in actions if action.help != argparse.SUPPRESS and not isinstance(action, hidden)]


def usage(parser: argparse.ArgumentParser) -> str:
    """The command line with what it requires."""
    return f"```text\n{parser.format_usage().removeprefix('usage: ').strip()}\n```\n"


def _block(epilog: str) -> str:
    """Examples as code, other lines as they are."""
    return "\n".join(
        f"```sh\n{line.removeprefix('Example: ')}\n```\n" if line.startswith("Example: ") else escaped(line)
        for line in epilog.splitlines()
    )


def _options_table(
    parser: argparse.ArgumentParser, title: str, about: str | None, actions: Sequence[argparse.Action]
) -> str:
    formatter = argparse.HelpFormatter(parser.prog)
    rows = [
        (code(formatter._format_action_invocation(action)), escaped(formatter._expand_help(action)), _default(action))
        for action in actions
    ]
    columns = 3 if any(default for *_, default in rows) else 2
    head = (escaped(title.capitalize()), "Meaning", "Default")
    options = table(head[:columns], [row[:columns] for row in rows]) if rows else ""
    return "\n\n".join([*map(escaped, (about or "").splitlines()), options])


def _default(action: argparse.Action) -> str:
    """The default of an option whose help does not name it."""
    shown = not action.required and "default" not in (action.help or "") and not isinstance(action.default, bool)
    return code(action.default) if shown and action.default not in (None, argparse.SUPPRESS, []) else ""


# Settings and recipes -------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """Every setting, by section."""
    head = ("Setting", "Default", "Values", "Meaning")
    parts = [
        f"## [{name}]: {about} {{ #{name} }}\n\n{table(head, _settings(name))}" for name, about in SECTIONS.items()
    ]
    about = "Set with `--set section.key=value`, or in a recipe. `headwise settings` prints the same list."
    return "\n".join(["# Settings\n", GENERATED, "", about, "", *parts])


def _settings(section: str) -> list[tuple[str, str, str, str]]:
    return [
        (f"`{key}`{{ #{key} }}", code(json.dumps(own.default)), escaped(allowed_values(own)), escaped(meaning_of(own)))
        for key, own in SETTINGS.items()
        if key.startswith(f"{section}.") and not own.derived
    ]


def recipes_page() -> str:
    """Every recipe: what its comments say, and its settings."""
    recipes = "\n".join(
        recipe_text(path.stem, path.read_text(encoding="utf-8")) for path in sorted(RECIPES.glob("*.toml"))
    )
    about = "A recipe is a set of [settings](settings.md). Choose one with `headwise train --recipe NAME`."
    return f"# Recipes\n\n{GENERATED}\n\n{about}\n\n{recipes}"


def recipe_text(name: str, toml: str) -> str:
    """A recipe whose first comments are the text above it."""
    lines = toml.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    about = "\n".join(line.removeprefix("#").strip() for line in lines[:count])
    settings = "\n".join(lines[count:]).strip()
    return f"## {name} {{ #{name} }}\n\n{about}\n\n```toml\n{settings}\n```\n"


# HTTP -----------------------------------------------------------------------------------------------------------------


def http_page() -> str:
    """The operations of `headwise serve`, from its OpenAPI document."""
    paths = openapi_document(RequestLimits(), ["en"], ["de"])["paths"]
    operations = [operation_text(method, path, one) for path, own in paths.items() for method, one in own.items()]
    about = (
        "`headwise serve` answers these requests. The server describes itself at `/docs` and, for programs, at "
        "`/openapi.json`, with its own languages and limits; here they are those of a server of English and German "
        "with default limits."
    )
    return "\n".join(["# HTTP API\n", GENERATED, "", about, "", *operations])


def operation_text(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """A request: its parameters, its response and its errors."""
    parts = [f"## {method.upper()} {path} {{ #{method}-{re.sub('[/{}]+', '-', path).strip('-')} }}"]
    parts.append(f"{operation['summary']}.")
    contents = operation.get("requestBody", {}).get("content", {})
    if contents:
        schema = next(iter(contents.values()))["schema"]
        parts += [f"Content types: {', '.join(map(code, contents))}.", parameter_table(schema)]
    errors = []
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            parts += [f"Response: {', '.join(map(code, response['content']))}", *_example(response["content"])]
        else:
            errors.append((code(status), response["description"]))
    return "\n\n".join([*parts, table(("Error", "Meaning"), errors)])


def parameter_table(schema: Mapping[str, Any]) -> str:
    """The properties of a request's body."""
    rows = []
    for name, own in schema["properties"].items():
        needed = (
            "required" if name in schema.get("required", ()) else json.dumps(own["default"]) if "default" in own else ""
        )
        rows.append((code(name), escaped(type_of(own)), escaped(own.get("description", "")), escaped(needed)))
    return table(("Parameter", "Type", "Meaning", "Default"), rows)


def type_of(schema: Mapping[str, Any]) -> str:
    """A type in words.

    >>> type_of({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]})
    'string, or list of number'
    """
    if "oneOf" in schema:
        return ", or ".join(map(type_of, schema["oneOf"]))
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    return f"list of {type_of(schema['items'])}" if "items" in schema else kind


def _example(content: Mapping[str, Any]) -> Iterator[str]:
    schema = content.get("application/json", {}).get("schema")
    if schema:
        yield f"```json\n{json.dumps(shape_of(schema), indent=2, ensure_ascii=False)}\n```"


def shape_of(schema: Mapping[str, Any]) -> Any:
    """What a value of this schema looks like, with types in place of values.

    >>> shape_of({"type": "array", "items": {"type": "object", "properties": {"code": {"type": "string"}}}})
    [{'code': 'string'}]
    """
    if "oneOf" in schema:
        return shape_of(schema["oneOf"][0])
    if "properties" in schema:
        return {name: shape_of(own) for name, own in schema["properties"].items()}
    return [shape_of(schema["items"])] if "items" in schema else schema.get("example", type_of(schema))


# Python ---------------------------------------------------------------------------------------------------------------


def python_page() -> str:
    """What `import headwise` offers."""
    names = [f"headwise.{name}" for name in sorted(headwise.__all__, key=str.casefold) if not name.startswith("_")]
    about = "`import headwise` offers these names; torch is loaded when it is first needed."
    return _api("Python API", about, names)


def models_page() -> str:
    """The classes of models that `headwise.load` returns."""
    for table in (KINDS, TRAINED):
        assert all(table.values())  # imports them
    classes = sorted({f"{kind.__module__}.{kind.__name__}" for kind in _below(Model)})
    about = (
        "`headwise.load` returns one of these, according to the network, or a class below them: each has the methods "
        "that suit it, with those that it inherits; `model.methods` lists them."
    )
    return _api("Kinds of models", about, [name for name in classes if name.startswith("headwise.")])


def _below(kind: type) -> Iterator[type]:
    for other in kind.__subclasses__():
        yield other
        yield from _below(other)


def package_page(title: str, *names: str) -> str:
    """Every module of some packages; the documentation of the first is the introduction."""
    packages = [import_module(name) for name in names]
    found = [one for package in packages for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    return _api(title, packages[0].__doc__ or "", sorted(one.name for one in found if not one.ispkg))


def _api(title: str, about: str, names: Sequence[str]) -> str:
    return "\n\n".join([f"# {title}", GENERATED, about.strip(), *map(_entry, names)]) + "\n"


def _entry(name: str) -> str:
    """A name that mkdocstrings describes; `Model` with the methods of all kinds, which it inherits for editors."""
    if name != "headwise.Model":
        return f"::: {name}"
    of_all = [one for one in (*Model.__annotations__, *vars(Model)) if not one.startswith("_")]
    return f"::: {name}\n    options:\n      inherited_members: [{', '.join([*of_all, *METHODS])}]"


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands/index.md": command_index,
    **{f"reference/commands/{group_page(group)}": partial(commands_of, group) for group in COMMANDS},
    "reference/settings.md": settings_page,
    "reference/recipes.md": recipes_page,
    "reference/http.md": http_page,
    "reference/python/index.md": python_page,
    "reference/python/models.md": models_page,
    "reference/python/core.md": partial(package_page, "The Transformer", "headwise.core", "headwise.core.extensions"),
    "reference/python/inspect.md": partial(
        package_page,
        "Attention: headwise.view and headwise.pytorch.inspect",
        "headwise.view",
        "headwise.pytorch.inspect",
    ),
}
