"""The pages are written so that they can be read: lines and paragraphs are short, words are the field's, links lead
somewhere, and what a chart shows stands in a table beside it."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "tests/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE_CHARS_MAX = 120
PARAGRAPH_LINES_MAX = 5
# Words that mean something only to a reader who knows the program. A dead letter is a term of the field.
PRIVATE = re.compile(
    r"\b(whoever|somebody|nobody|strangers?|doors?|bells?|(?<!dead[-. ])letters?(?!, digits)|desks?|knock\w*)\b",
    re.IGNORECASE,
)


def parts(page):
    """Each paragraph or item of a list, heading and table row with the number of its first line; blocks of commands and
    what the program made are left out."""
    inside, paragraph, first = None, [], 0
    for number, line in enumerate([*page.read_text().splitlines(), ""], 1):
        bare = line.strip()
        if inside:
            inside = None if re.match(inside, bare) else inside
            continue
        begins = re.match(r"```|[|#]|<!--|[-*] |\d+\. ", bare)
        if paragraph and (not bare or begins):
            yield first, paragraph
            paragraph = []
        if bare.startswith("```"):
            inside = r"```$"
        elif bare.startswith("<!-- measured"):
            inside = r"<!-- /measured"
        elif re.match(r"[|#]|<!--", bare):
            yield number, [line]
        elif bare:
            first = first if paragraph else number
            paragraph.append(line)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_short_lines_and_paragraphs_and_plain_words(page):
    wrong = []
    for number, lines in parts(page):
        if lines[0].lstrip().startswith("|"):
            pass
        elif max(map(len, lines)) > LINE_CHARS_MAX:
            wrong.append((number, "a line is longer than 120 characters"))
        elif len(textwrap.wrap(" ".join(lines), LINE_CHARS_MAX)) > PARAGRAPH_LINES_MAX:
            wrong.append((number, "a paragraph is longer than five lines"))
        wrong += [(number, word[0]) for word in PRIVATE.finditer(" ".join(lines))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_s_links_lead_to_files_and_headings(page):
    text = "\n".join(" ".join(lines) for _, lines in parts(page))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# Made by `make measure`, and not kept.
NOT_KEPT = {"docs/measurements/report.html"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_files_that_there_are(page):
    text = "\n".join(" ".join(lines) for _, lines in parts(page))
    named = re.findall(r"`((?:crates|docs|samples|testdata|tests|tools)/[\w./-]*)`", text)
    assert {name for name in named if not (ROOT / name).exists()} <= NOT_KEPT


def test_what_the_charts_of_measurements_show_stands_in_the_tables_of_their_section():
    sections = re.split(r"^## ", (ROOT / "docs/measurements.md").read_text(), flags=re.MULTILINE)
    charts = 0
    for section in sections:
        blocks = re.findall(r"^```mermaid\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        table = "\n".join(line for line in section.splitlines() if line.startswith("|")).replace(",", "")
        numbers = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", table)}
        for block in blocks:
            charts += 1
            [names] = re.findall(r"x-axis \[(.*)\]", block)
            [shown] = re.findall(r"bar \[(.*)\]", block)
            values = [float(value) for value in shown.split(",")]
            assert len(values) == len(re.findall(r'"[^"]*"', names)), block
            assert set(values) <= numbers, f"{set(values) - numbers}: {block}"
    assert charts > 5


MAP_LINES_MAX = 149


def test_the_map_of_the_code_is_short_and_names_files_that_there_are():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    lines = text.splitlines()
    assert len(lines) <= MAP_LINES_MAX
    assert [line for line in lines if len(line) > LINE_CHARS_MAX] == []
    named = re.findall(r"`((?:bulla[\w-]*|docs)/[\w./-]*)`", text)
    assert len(named) > 10
    assert [name for name in named if not ((ROOT / "crates" / name).exists() or (ROOT / name).exists())] == []
