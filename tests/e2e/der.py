"""DER taken apart into a tree and put together again, so that a test can change any part of an envelope."""

from dataclasses import dataclass, field

CONSTRUCTED = 0x20


@dataclass
class Node:
    """One element: the tag, and either its parts or its bytes."""

    tag: int
    content: bytes = b""
    parts: list = field(default_factory=list)

    @property
    def constructed(self):
        return bool(self.tag & CONSTRUCTED)

    def encode(self):
        content = b"".join(part.encode() for part in self.parts) if self.constructed else self.content
        return bytes([self.tag]) + length(len(content)) + content

    def at(self, *path):
        node = self
        for index in path:
            node = node.parts[index]
        return node

    def leaves(self, path=()):
        """Every element without parts, with the way to it."""
        if not self.constructed:
            yield path, self
        for index, part in enumerate(self.parts):
            yield from part.leaves((*path, index))


def length(count):
    if count < 0x80:
        return bytes([count])
    octets = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(octets)]) + octets


def parse(data):
    node, rest = _element(memoryview(data))
    assert not rest, "trailing bytes"
    return node


def _element(data):
    tag, first, at = data[0], data[1], 2
    assert tag & 0x1F != 0x1F, "no long tags in CMS"
    if first & 0x80:
        size = first & 0x7F
        first, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
    content, rest = data[at : at + first], data[at + first :]
    if not tag & CONSTRUCTED:
        return Node(tag, bytes(content)), rest
    parts = []
    while content:
        part, content = _element(content)
        parts.append(part)
    return Node(tag, b"", parts), rest


def oid(text):
    """The content of an OBJECT IDENTIFIER."""
    first, second, *others = (int(number) for number in text.split("."))
    out = b""
    for number in (first * 40 + second, *others):
        octets = [number & 0x7F]
        while number := number >> 7:
            octets.append(number & 0x7F | 0x80)
        out += bytes(reversed(octets))
    return out


def flipped(data, offset):
    """The bytes with one bit of one byte changed."""
    changed = bytearray(data)
    changed[offset] ^= 0x01
    return bytes(changed)


def indefinite(data):
    """The same element with its outermost length left indefinite: BER, not DER."""
    node = parse(data)
    return bytes([node.tag, 0x80]) + b"".join(part.encode() for part in node.parts) + b"\0\0"
