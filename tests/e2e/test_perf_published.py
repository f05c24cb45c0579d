"""`bulla perf published`, tiny: published figures stand beside ours, on a page from one run."""

import json
import subprocess

from manager import BULLA

# A whole run, queue managers and certificates included (seconds); none of them comes near.
DEADLINE = 300
LONGER = ["--repeats", "1", "--seconds", "1.5", "--warm-up", "0.1", "--quiet"]
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
    assert software[1] == "100 % (published)" and float(software[2].split()[0]) == 100, software
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


def found_in(path):
    """The samples of a file of results."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert not lines[0].get("left_out"), lines[0]
    return lines[1:]


def test_interception_stands_beside_its_study_and_a_slow_getter_leaves_messages_behind(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    options = ["--rate", "3000", "--getter-rate", "500", "--quality", "none,integrity", "--memory", "1", "--max-depth", "100"]
    published("interception", *LONGER, *options, "--out", results, "--page", page)
    plain, integrity, scratch, full = found_in(results)
    for sample in (plain, integrity):
        assert sample["configuration"]["topology"] == "channel" and sample["transactions"] > 0
        assert sample["found"]["putter_us"] > 0 and sample["found"]["getter_us"] > 0
        assert any("xqtime_us" in moment for moment in sample["course"])
    # What is for puts and what is for gets are parts of protection, and there is none where nothing is protected.
    parts = integrity["found"]["sealing_us"] + integrity["found"]["opening_us"]
    assert 0 < parts <= integrity["cpu_us"]["protection"] * 1.01
    assert "sealing_us" not in plain["found"] and "opening_us" not in plain["found"]
    assert scratch["found"]["scratch_bytes"] >= 2048 * scratch["found"]["scratch_messages"] > 0
    assert scratch["found"]["scratch_wait_us"] > 0 and "refused_2053" not in scratch["found"]
    assert full["found"]["refused_2053"] > 0 and "scratch_messages" not in full["found"]
    assert max(moment["depth"] for moment in full["course"]) <= 100 + full["configuration"]["in_flight"]
    # Where the getter is slow, what it leaves behind is watched as it develops.
    used = [moment["scratch_used_bytes"] for moment in scratch["course"]]
    assert max(used) > 0 and used[-1] > used[0], used
    assert all(moment["scratch_used_bytes"] == 0 for moment in full["course"])
    assert any(moment["qtime_us"] > 0 for moment in scratch["course"])
    assert all("qtime_us" not in moment and "scratch_used_bytes" not in moment for moment in plain["course"])
    text = page.read_text()
    for words in ("Scratch files over time", "Time on the queue over time", "Messages on the queue over time"):
        assert words in text, words
    # The study's figures are those of its own rate alone.
    assert "3,250" not in text and rows(text, "messages/s: published")[0][0] == "unprotected"
    assert "XQTIME over time" in text and len(rows(text, "messages to scratch files")) == 2


def test_each_cipherspec_of_tls_has_its_certificate_and_renews_its_keys(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    published("tls", *TINY, "--size", "8k", "--reset", "0,64k", "--out", results, "--page", page)
    samples = found_in(results)
    keys = {sample["configuration"].get("cipher", "none"): sample["configuration"].get("key") for sample in samples}
    assert keys == {
        "none": None,
        "ECDHE_RSA_AES_256_CBC_SHA384": "rsa2048",
        "TLS_RSA_WITH_AES_256_CBC_SHA256": "rsa2048",
        "ECDHE_ECDSA_AES_256_CBC_SHA384": "p256",
    }
    for sample in samples:
        renews = sample["configuration"].get("reset_bytes", 0) > 0
        assert (sample.get("found", {}).get("resets", 0) > 0) == renews, sample
    text = page.read_text()
    assert len(rows(text, "TLS adds, µs: published")) == 4
    resets = rows(text, "ms a reset: published")
    assert len(resets) == 3 and all(row[1] == "6 to 10 (published)" and row[2] for row in resets), resets


def test_receivers_with_a_short_buffer_get_what_was_sealed(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    published("buffer", *TINY, "--quality", "integrity,confidentiality", "--key", "p256", "--out", results, "--page", page)
    samples = found_in(results)
    assert [sample["configuration"]["receiver_bytes"] for sample in samples] == [2048, 20_480] * 2
    assert all(sample["transactions"] > 0 for sample in samples)
    assert len(rows(page.read_text(), "short receiver")) == 2
    # The whole message counts: this one is longer with its sections.
    refused = published("buffer", *TINY, "--quality", "integrity", "--key", "p256", "--size", "2048", codes=(1,))
    assert "2080" in refused.stderr, refused.stderr


def test_key_size_falls_as_published_and_cards_share_the_work(tmp_path):
    results, page = tmp_path / "results.jsonl", tmp_path / "key-size.md"
    options = ["--quality", "integrity", "--size", "2k", "--devices", "modelled:1a+2c", "--out", results, "--page", page]
    published("key-size", *TINY, *options, "--key", "rsa1024,rsa4096,p192")
    samples = [json.loads(line) for line in results.read_text().splitlines()]
    samples = {sample["configuration"]["key"]: sample for sample in samples if sample["kind"] == "sample"}
    # A coprocessor takes eleven times as long.
    assert samples["rsa4096"]["rate"] < 0.3 * samples["rsa1024"]["rate"]
    for key, sample in samples.items():
        done = {(device["name"], used["operation"]) for device in sample["devices"] for used in device["operations"]}
        signing = {name for name, operation in done if operation.lower().endswith("sign")}
        checking = {name for name, operation in done if operation.lower().endswith("verify")}
        assert signing and all(name.startswith("MODEL.COPROC") for name in signing), done
        assert checking and all(name.startswith("MODEL.COPROC" if key == "p192" else "MODEL.ACCEL") for name in checking), done
    text = page.read_text()
    for words in ["1,342 (published)", "122 (published)", "0.596 (published)", "152.7", "RSA 15360", "A-ME"]:
        assert words in text, words
