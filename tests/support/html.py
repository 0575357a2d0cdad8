"""What a browser is given: a strict reader of HTML that complains about whatever a browser would silently mend."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})
DRAWN = frozenset({"path", "rect", "circle", "line"})
Attributes = list[tuple[str, str | None]]


@dataclass
class Element:
    """One element: its name, attributes, and the text within it."""

    name: str
    attributes: dict[str, str]
    path: tuple[str, ...]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text within it, all of it."""
        return "".join(self.pieces)


@dataclass
class Document(HTMLParser):
    """All elements in order, and every complaint."""

    elements: list[Element] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            self.complaints.append(f"<{tag}> has an attribute twice")
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(one.name for one in self.open))
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        if tag not in DRAWN | VOID:
            self.complaints.append(f"<{tag}/> closes itself")
        self.elements.append(
            Element(tag, {name: value or "" for name, value in attrs}, tuple(one.name for one in self.open))
        )

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].name != tag:
            self.complaints.append(f"</{tag}> closes {self.open[-1].name if self.open else 'nothing'}")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)

    def unknown_decl(self, data: str) -> None:
        self.complaints.append(f"unknown declaration {data[:40]}")

    def handle_pi(self, data: str) -> None:
        self.complaints.append(f"processing instruction {data[:40]}")

    def all(self, name: str) -> list[Element]:
        """Every element of that name."""
        return [element for element in self.elements if element.name == name]


def read(text: str) -> Document:
    """Parse a whole page."""
    document = Document()
    document.feed(text)
    document.close()
    document.complaints += [f"<{element.name}> is never closed" for element in document.open]
    return document
