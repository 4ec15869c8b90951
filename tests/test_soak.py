"""The flight killed at random until it is done: it ends where an undisturbed one ends. And reads by
the ten thousand through every fault: each is right, or its damage is named.

`make soak` prints the tables that stand in docs/soak.md.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults import proxy
from tests.seaweed import BUCKET, Seaweed
from tests.test_flight import recipe_file
from tests.tokens.made import BLOCK_BYTES, copy_store, documents, whole
from tests.tokens.sweep import OF_READS, Swept, Undisturbed, renewable_credentials, sweep

from eyas.checkpoint import Commit, load_slices, newest_whole
from eyas.store import open_store, read_manifest, s3_client, verify

KILLS = int(os.environ.get("EYAS_SOAK_KILLS", "12"))
SEED = int(os.environ.get("EYAS_SOAK_SEED", "1"))
READS = int(os.environ.get("EYAS_SOAK_READS", "10000"))


def _start(recipe: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "eyas", "run", str(recipe), "--json", "--out", str(out)]
    command += ["--set", f"train.tokens={240 * 512}"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _killed_after(process: subprocess.Popen[str], seconds: float) -> tuple[bool, str]:
    """SIGKILL the command alone, as the kernel would; what it started is its own to end."""
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return True, ""
    assert process.returncode == 0, error
    return False, out


def _made(store_url: Path) -> tuple[dict[str, Any], Commit]:
    store = open_store(str(store_url))
    rooms = {}
    for room in ("corpus", "tokenizer", "tokens"):
        manifest = read_manifest(store, room)
        assert manifest is not None
        timed = (".html",) if room == "corpus" else (".json", ".html")
        data = [o for o in manifest.objects if not o.key.endswith(timed)]
        data = [o for o in data if not o.key.startswith("corpus/cost-")]
        rooms[room] = [(o.key, o.size, o.crc32c) for o in data]
    commit = newest_whole(store, deep=True)
    assert commit is not None
    report = verify(store)
    assert not report.problems
    return rooms, commit


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_flight_killed_again_and_again_ends_where_an_undisturbed_one_ends(tmp_path: Path) -> None:
    calm_store, wild_store = tmp_path / "calm", tmp_path / "wild"
    layout = "data = 2"
    calm = recipe_file(tmp_path, str(calm_store), layout, rehearse_kill=0)
    out, error = _start(calm, tmp_path / "calm-out").communicate()
    assert out, error
    wild = recipe_file(tmp_path, str(wild_store), layout, rehearse_kill=0)
    chance, kills, seconds = random.Random(SEED), 0, []
    while True:
        wait = chance.uniform(1, 12) if kills < KILLS else 3600
        killed, out = _killed_after(_start(wild, tmp_path / "wild-out"), wait)
        if not killed:
            break
        kills += 1
        seconds.append(round(wait))
    lines = {row["stage"]: row["line"] for row in json.loads(out)["stages"]}
    assert "equals an undisturbed run's" in lines["train"]
    (calm_rooms, calm_commit), (wild_rooms, wild_commit) = _made(calm_store), _made(wild_store)
    assert wild_rooms == calm_rooms
    assert wild_commit.facts["digest"] == calm_commit.facts["digest"]
    assert _weights(calm_store, calm_commit) == _weights(wild_store, wild_commit)
    print(f"\n| kills | after seconds | corpus, tokens | data digest | weights |\n|{' --- |' * 5}")
    print(f"| {kills} | {seconds} | byte-identical | equal | bit-identical |")


def _weights(store_url: Path, commit: Commit) -> dict[str, bytes]:
    wanted = {name: info.whole for name, info in commit.tensors.items()}
    tensors = load_slices(open_store(str(store_url)), commit, wanted)
    return {name: tensor.numpy().tobytes() for name, tensor in sorted(tensors.items())}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_reads_through_every_fault_are_right_or_named(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First each kind alone, 5 % of the requests; then all of them at once, 4 % in all."""
    monkeypatch.setattr(sys.modules["eyas.tokens.tokens_stage"], "BLOCK_BYTES", BLOCK_BYTES)
    calm = open_store(str(tmp_path / "calm"))
    whole(calm, [documents(90, source) for source in range(3)])
    wild = open_store(f"s3://{BUCKET}/soak")
    copy_store(calm, wild)
    truth = Undisturbed.of(calm)
    renewable_credentials(tmp_path, seaweed.access_key, seaweed.secret_key, monkeypatch)
    monkeypatch.setattr(s3_client, "READ_SECONDS", 0.5)
    monkeypatch.setattr(s3_client, "STALL_SECONDS", 0.5)
    rows: dict[str, Swept] = {}
    with proxy(seaweed.endpoint) as between:
        monkeypatch.setenv("AWS_ENDPOINT_URL", between.endpoint)
        for kind in OF_READS:
            rows[kind] = sweep(wild.url, between, {kind: 0.05}, SEED, READS // 25, truth)
        shares = dict.fromkeys(OF_READS, 0.04 / len(OF_READS))
        rows["all at once"] = sweep(wild.url, between, shares, SEED, READS, truth)
    print("\n| fault | reads | injected | named | wrong | lost |\n|" + " --- |" * 6)
    for name, swept in rows.items():
        print(swept.row(name))
    assert all(swept.injected for swept in rows.values()), "the faults did happen"
    assert [swept.lost for swept in rows.values() if swept.lost] == []
    assert sum(swept.wrong for swept in rows.values()) == 0
