"""Resources of .NET (`.resx`, `.resw`): https://learn.microsoft.com/dotnet/core/extensions/work-with-resx-files-programmatically.

The `value` of a `data` element is a unit. Objects and files (`type`, `mimetype`), properties of forms that are no texts
(`>>button.Name`, `$this.Size`, and `button.Size` if `>>button.` occurs) and metadata stay.
"""

import re
from collections.abc import Iterator, Sequence

from headwise.documents.formats.xml_texts import ElementText, XmlTexts
from headwise.documents.markup.markup import Element, Source, to_xml
from headwise.documents.unit import Skipped

STRING_TYPES = ("", "System.String")
# Values of these properties of a form's controls are no texts; designers write them without a type.
NO_TEXT = re.compile(r"(.+)\.(?:Name|ImeMode|Anchor|Dock|Font|Location|Size|TabIndex|Type|ZOrder)")


def read_resx(path: str, data: bytes, languages: Sequence[str]) -> XmlTexts:
    """Read resources; `languages` are ignored."""
    source = Source(path, data)
    source.check_root("root", ".NET resources")
    skipped = [
        Skipped("object or file", element.line, element.attributes.get("name", ""))
        for element in source.root.children
        if element.name in ("data", "metadata") and not _is_text(element)
    ]
    return XmlTexts(source, _texts(source), skipped)


def _is_text(element: Element) -> bool:
    type_name = element.attributes.get("type", "").partition(",")[0].strip()
    return element.name == "data" and type_name in STRING_TYPES and "mimetype" not in element.attributes


def _texts(source: Source) -> Iterator[ElementText]:
    names = [element.attributes.get("name", "") for element in source.root.children if element.name != "resheader"]
    controls = {name[2:].rpartition(".")[0] for name in names if name.startswith(">>")}
    is_form = bool(controls) or any(name.startswith("$this.") for name in names)
    for element in source.root.children:
        value = element.child("value")
        if not _is_text(element) or value is None:
            continue
        key = element.attributes.get("name", "")
        control = NO_TEXT.fullmatch(key) if is_form else None
        no_text = control is not None and (not controls or control[1] in {*controls, "$this"})
        kept = "property of a form" if no_text or key.startswith(">>") else ""
        yield ElementText.of(value, source.parts(value, lambda child: False), to_xml, key, kept)
