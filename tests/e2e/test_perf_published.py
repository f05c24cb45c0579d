"""`bulla perf published`, tiny: published figures stand beside ours, on a page from one run."""

import json
import subprocess

from manager import BULLA

# A whole run, queue managers and certificates included (seconds); none of them comes near.
DEADLINE = 300
TINY = ["--repeats", "1", "--seconds", "0.5", "--warm-up", "0.1", "--quiet"]


def published(*arguments, codes=(0,)):
    """Runs it: what it printed, and what it complained of."""
    done = subprocess.run(
        [BULLA, "perf", "published", *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=DEADLINE,
        text=True,
    )
    assert done.returncode in codes, done.stderr
    return done


def rows(markdown, heading):
    """The rows of the first table whose heading has this word, each a list of cells."""
    lines = markdown.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("|") and heading in line)
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_https_stands_beside_its_study(tmp_path):
    html, markdown = tmp_path / "https.html", tmp_path / "https.md"
    options = ["--key", "rsa4096", "--order-key", "rsa1024", "--devices", "software,cpu", "--clients", "2"]
    published("https", *TINY, *options, "--page", html, "--page", markdown)
    software, processor = rows(markdown.read_text(), "published")
    # Half a second is short, and the value may say that it was not steady.
    assert software[1] == "100 % (published)" and software[2].split()[0] == "100", software
    assert processor[1] == "2 × (published)" and float(processor[2].replace(",", "").split()[0]) > 0, processor
    for words in ["Published beside ours", "Throughput against software", "over 20 ms (published)"]:
        assert words in html.read_text(), words


def test_a_study_prints_its_tables_where_no_page_is_asked_for():
    options = ["--key", "p256", "--order-key", "p256", "--devices", "cpu", "--clients", "2"]
    told = published("https", *TINY, *options).stdout
    assert rows(told, "published"), told
    lines = published("https", *TINY, *options, "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run", "sample"]


def test_a_study_takes_no_broker_and_no_page_of_another_kind(tmp_path):
    assert "--amqp" in published("https", "--amqp", "127.0.0.1:1", codes=(2,)).stderr
    assert ".html" in published("https", "--page", tmp_path / "page.pdf", codes=(2,)).stderr
