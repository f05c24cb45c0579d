"""The page of `bulla perf report`, in a real browser: no text meets another, nothing is cut, and no network or script is needed."""

import html
import json
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BULLA = os.environ.get("BULLA", "target/release/bulla")
ROOT = Path(__file__).parents[2]

if CHROMIUM is None:
    warnings.warn("skipped: the report's page in a browser: there is no chromium", stacklevel=1)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

# Looks at every drawing that is shown: texts that meet, texts that leave their drawing, and whatever is wider than the page.
LOOK = """
const found = [];
for (const folded of document.querySelectorAll('details')) folded.open = true;
const shown = [...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
for (const svg of shown) {
  const frame = svg.getBoundingClientRect();
  const name = svg.querySelector('title').textContent;
  const texts = [...svg.querySelectorAll('text')];
  const slanted = text => (text.getAttribute('transform') || '').includes('rotate');
  const boxes = texts.map(text => [text, text.getBoundingClientRect()]);
  for (const [text, box] of boxes)
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
      found.push(`${name}: cut: ${text.textContent}`);
  const level = boxes.filter(([text]) => !slanted(text));
  for (let i = 0; i < level.length; i++)
    for (let j = i + 1; j < level.length; j++) {
      const [a, b] = [level[i][1], level[j][1]];
      // Line boxes are higher than letters: a fifth of one may lie on its neighbour's.
      const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (x > 1 && y > 0.2 * Math.min(a.height, b.height) + 1)
        found.push(`${name}: meet: ${level[i][0].textContent} / ${level[j][0].textContent}`);
    }
}
if (document.documentElement.scrollWidth > document.documentElement.clientWidth + 1)
  found.push(`the page is ${document.documentElement.scrollWidth} wide`);
for (const cell of document.querySelectorAll('td, th, p, li, summary, caption')) {
  const box = cell.getBoundingClientRect();
  if (box.width > 0 && cell.closest('thead') === null && box.right > document.documentElement.clientWidth + 1)
    found.push(`cut: ${cell.textContent.slice(0, 60)}`);
}
const paper = getComputedStyle(document.body).backgroundColor;
parent.document.getElementById('found').textContent = 'LOOKED ' + JSON.stringify({drawings: shown.length, paper, found});
"""

# Where the first section's answer and chart end, before anything is opened or moved, and what else is shown.
FIRST_SCREEN = """
const shown = kind => [...document.querySelectorAll(kind)].filter(each => each.checkVisibility() && each.getBoundingClientRect().width > 0);
const end = each => each.getBoundingClientRect().bottom;
const first = document.querySelector('main section');
const seen = {
  answer: first.querySelector('.answer').textContent, answerEnds: end(first.querySelector('.answer')), chartEnds: end(shown('main svg')[0]),
  tables: shown('table').length, answers: shown('.answer').length,
  drawings: [...document.querySelectorAll('main section')].map(section => shown('svg').filter(svg => section.contains(svg)).length),
};
parent.document.getElementById('found').textContent = 'LOOKED ' + JSON.stringify(seen);
"""


def invented():
    """Results that nobody measured, with long names, many configurations and everything that a report can show."""
    machine = {"processor": "Invented CPU with a name that is long enough to need more than one line on a telephone", "cores": 2}
    lines = []

    def sample(workload, repeat, rate, configuration, **more):
        roles = ["application", "queue-manager", "channel-initiator", "tls", "protection", "devices", "journal", "administration"]
        cpu = {role: 1e6 / rate / (2 + at) for at, role in enumerate(roles)}
        device = "MODELLED" if "modelled" in configuration.get("devices", "") else "ACCELERATOR"
        lines.append(
            {
                "kind": "sample", "run": workload, "workload": workload, "configuration": configuration, "repeat": repeat,
                "seconds": 3.0, "messages": 100, "transactions": 100, "rate": rate * (1 + repeat / 30), "cpu-us": cpu,
                "process-cpu-us": sum(cpu.values()), "latency-us": {"mean": 1e6 / rate, "p50": 9e5 / rate, "p99": 3e6 / rate},
                "devices": [{"name": "CARD1", "kind": device, "busy-percent": 70.0, "operations": [
                    {"operation": "rsa-sign", "format": form, "bits": 2048, "count": 100, "execution-us": 99.5} for form in ("ME", "CRT", "EC")]}],
                "tasks": [{"kind": "ADAPTER", "name": "adapter-0", "requests": 9, "cpu-us": 3.0, "elapsed-us": 10.0, "wait-us": 7.0}],
                "cores-busy": 1.9, **more,
            }
        )  # fmt: skip

    for workload in ("key-size", "key-reuse", "stream", "channel", "tasks", "devices", "islands"):
        lines.append({"kind": "run", "format": 1, "run": workload, "workload": workload, "started": "2026-11-22 08:00:00", "machine": machine,
                      "command": f"bulla perf {workload} --self --with-an-option-that-is-very-long=and-has-a-long-value-too"})  # fmt: skip
    qualities = ("integrity", "privacy", "confidentiality")
    for repeat in (1, 2):
        for bytes_ in (2048, 4 << 20):
            for at, key in enumerate(("rsa1024", "rsa2048", "rsa4096", "p192", "p224", "p256", "p521")):
                for quality in qualities:
                    unsteady = ["the backlog grew", "others used 0.4 cores"] if key == "rsa4096" else []
                    sample("key-size", repeat, 123456.0 / (1 + at), {"quality": quality, "key": key, "bytes": bytes_}, unsteady=unsteady)
        for pairs in (1, 5, 10, 21):
            for at, reuse in enumerate(("0", "1", "2", "4", "8", "16", "32", "64", "unlimited")):
                sample("key-reuse", repeat, 999.0 * (1 + at), {"quality": "confidentiality", "key": "rsa2048", "reuse": reuse, "pairs": pairs})
        for quality in qualities:
            course = [{"at": second, "rate": 9000.0 + second, "depth": second * 7.0, "xqtime-us": 50.0 * second, "cores-busy": 1.5,
                       "device-busy-percent": 50.0} for second in range(1, 61)]  # fmt: skip
            goal = {"what": "10000 messages a second", "wanted": 10000.0, "reached": 9990.0, "held": False}
            sample("stream", repeat, 9990.0, {"quality": quality, "key": "rsa1024", "target-rate": 10000}, course=course, goal=goal)
        for cipher in ("", "ECDHE_RSA_WITH_AES_128_CBC_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_CIPHERSPEC_HAS_EVER_BEEN_OR_WILL_BE"):
            for reset in (0, 1 << 20):
                sample("channel", repeat, 5000.0, {"cipher": cipher, "reset-bytes": reset, "topology": "channel"}, found={"raw-aead-us": 7.3})
        for dispatchers in (1, 2, 4, 10):
            for adapters in (1, 2, 4, 10):
                sample("tasks", repeat, 300.0 * adapters, {"quality": "privacy", "key": "rsa2048", "dispatchers": dispatchers, "adapters": adapters})
        for devices in ("software", "cpu", "1a", "2a", "1c", "modelled:1a", "modelled:2a+2c"):
            sample("devices", repeat, 2500.0, {"quality": "privacy", "key": "rsa2048", "devices": devices})
        for topology in ("unprotected", "end-to-end", "one-side", "two-authorities"):
            sample("islands", repeat, 0.75, {"topology": topology})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    results, earlier, out = folder / "invented.jsonl", folder / "earlier.jsonl", folder / "report.html"
    results.write_text(invented())
    earlier.write_text(re.sub(r'"rate": (\d+)', r'"rate": 1\1', results.read_text()))
    subprocess.run([BULLA, "perf", "report", results, "-o", out, "--compare", earlier], check=True, timeout=60)
    return out


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The page of the results that the repository keeps, made by the command that docs/measurements.md has for it."""
    out = tmp_path_factory.mktemp("kept") / "report.html"
    page = "docs/measurements/report.html"
    [command] = re.findall(rf"^bulla (perf report .* -o) {page}$", (ROOT / "docs/measurements.md").read_text(), re.M)
    script = f'"$BULLA" {command} "$OUT"'
    environment = os.environ | {"BULLA": os.path.abspath(BULLA), "OUT": str(out)}
    subprocess.run(["bash", "-c", script], cwd=ROOT, env=environment, check=True, timeout=60)
    return out


def looked(page, tmp_path, width, *options, script=LOOK):
    """What the script finds in the page when it is so wide."""
    text = page.read_text()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)
    assert policy, "the page says what it may load"
    text = text.replace(policy[0], "").replace("</body>", f"<script>{script}</script></body>")
    frame = f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(text)}"></iframe>'
    harness = tmp_path / "harness.html"
    harness.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0"><pre id="found"></pre>{frame}')
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1400,1000", *options, "--dump-dom", harness.as_uri()]  # fmt: skip
    dump = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True).stdout
    found = re.search(r"LOOKED (\{.*?\})</pre>", dump, re.S)
    assert found, dump[:500]
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_no_text_meets_another_and_nothing_is_cut(page, tmp_path, width, dark):
    seen = looked(page, tmp_path, width, *(["--blink-settings=preferredColorScheme=0"] if dark else []))
    assert seen["drawings"] > 30, seen
    assert (seen["paper"] == "rgb(22, 24, 28)") == dark, seen["paper"]
    assert seen["found"] == []


def test_the_first_screen_has_the_answer_and_its_chart(kept, tmp_path):
    seen = looked(kept, tmp_path, 1280, script=FIRST_SCREEN)
    assert "of the unprotected rate" in seen["answer"]
    assert seen["answerEnds"] < seen["chartEnds"] < 900, seen
    # Every workload has an answer and one chart; the rest is folded.
    assert seen["tables"] == 0 and len(seen["drawings"]) == seen["answers"] + 1, seen
    assert set(seen["drawings"][:-1]) == {1} and seen["drawings"][-1] == 0, seen


def test_all_keys_are_in_one_chart(kept):
    [section] = re.findall(r"<h2 id=\S+>Key sizes</h2>.*?</section>", kept.read_text(), re.S)
    figures = re.findall(r"<figure .*?</figure>", section, re.S)
    [by_key] = [figure for figure in figures if ">Rate by key size" in figure]
    assert {"RSA 1024", "RSA 2048", "RSA 4096", "P-256"} <= set(re.findall(r'<th scope="row"[^>]*>([^<]*)</th>', by_key))


def test_what_overlaps_is_found(page, tmp_path):
    # The check itself: a page whose texts are drawn twice as large does not pass it.
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("svg text { font: 12px", "svg text { font: 24px"))
    found = looked(broken, tmp_path, 1280)["found"]
    assert any(": meet: " in text for text in found) and any(": cut: " in text for text in found), found[:5]


def test_the_page_prints(tmp_path):
    # A few configurations: a browser takes long over patterns on paper.
    results, page, out = tmp_path / "few.jsonl", tmp_path / "few.html", tmp_path / "report.pdf"
    few = [line for line in invented().splitlines(keepends=True) if '"workload": "islands"' in line]
    results.write_text("".join(few))
    subprocess.run([BULLA, "perf", "report", results, "-o", page], check=True, timeout=60)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--no-pdf-header-footer", f"--print-to-pdf={out}", page.as_uri()]  # fmt: skip
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert out.read_bytes().startswith(b"%PDF")


def test_every_chart_has_its_data_as_a_table_and_words_for_who_does_not_see_it(page):
    text = page.read_text()
    figures = re.findall(r"<figure .*?</figure>", text, re.S)
    assert len(figures) > 30
    for figure in figures:
        assert re.search(r"<svg .*?<title id=.*?<desc id=", figure, re.S) and '<th scope="col"' in figure and '<th scope="row"' in figure


def test_a_hostile_file_is_text(tmp_path):
    results, out = tmp_path / "hostile.jsonl", tmp_path / "out.html"
    sample = {"kind": "sample", "workload": "<script>alert(1)</script>", "rate": 1.0, "unsteady": ['"><img src=x onerror=alert(1)>']}
    results.write_text(json.dumps(sample) + "\n")
    subprocess.run([BULLA, "perf", "report", results, "-o", out], check=True, timeout=60)
    text = out.read_text()
    assert "<script" not in text and "<img" not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize("line", ["hello", "[]", '{"kind":"run","format":99}', '{"kind":"sample","rate":"fast"}', '{"kind":"sample","rate":1e999}'])
def test_a_file_that_is_none_of_results_is_refused_with_its_line(tmp_path, line):
    results = tmp_path / "bad.jsonl"
    results.write_text(f"\n{line}\n")
    done = subprocess.run([BULLA, "perf", "report", results], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "bad.jsonl:2: " in done.stderr, done.stderr
