"""The release: licence, card, checksums, and the example that deploys it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eyas.checkpoint import export_hf, import_hf
from eyas.recipe import Recipe, UsageError
from eyas.store import Manifest, Store, commit_manifest, open_store, seal
from eyas.tokens import Tokenizer

from .networks import SHAPES, make_tokenizer, put_tokenizer, save_model

REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/sagemaker"
IMAGE = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/djl-inference:0.30.0-lmi12.0.0-cu124"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture
def trained(folder_store: Store, tokenizer: Tokenizer) -> Store:
    put_tokenizer(folder_store, tokenizer)
    save_model(folder_store, SHAPES["llama"], tokenizer)
    return folder_store


def licence_of(folder: Path) -> str:
    return (folder / "LICENSE").read_text(encoding="utf-8")


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_sha256sum_itself_finds_the_folder_whole(trained: Store, tmp_path: Path) -> None:
    export_hf(trained.url, tmp_path / "out")
    command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    named = {line.split(": ")[0] for line in done.stdout.splitlines()}
    assert named == {p.name for p in (tmp_path / "out").iterdir()} - {"SHA256SUMS"}


def test_without_a_licence_the_release_says_that_none_is_granted(
    trained: Store, tmp_path: Path
) -> None:
    report = export_hf(trained.url, tmp_path / "out")
    assert report.licence == ""
    assert licence_of(report.folder).startswith("No licence is granted")
    card = card_of(report.folder)
    assert "No licence is granted" in card
    assert "\nlicense" not in card
    again = open_store(str(tmp_path / "again"))
    import_hf(report.folder, again)
    second = export_hf(again.url, tmp_path / "second")
    assert second.licence == ""
    assert licence_of(second.folder) == licence_of(report.folder)


def test_the_recipe_states_the_licence_and_the_caller_may_state_another(
    trained: Store, tmp_path: Path
) -> None:
    recipe = f'name = "kite"\nstore = "{trained.url}"\n[model]\nlicence = "Apache-2.0"\n'
    trained.put("recipe.toml", Recipe.parse(recipe, "r.toml").to_toml().encode())
    report = export_hf(trained.url, tmp_path / "apache")
    assert report.licence == "Apache-2.0"
    text = licence_of(report.folder)
    assert text.lstrip().startswith("Apache License\n")
    assert "END OF TERMS AND CONDITIONS" in text
    assert "\nlicense: apache-2.0\n" in card_of(report.folder)
    assert "Apache-2.0 (model.licence of the recipe), see LICENSE." in card_of(report.folder)
    report = export_hf(trained.url, tmp_path / "mit", licence="mit")
    assert report.licence == "MIT"
    text = licence_of(report.folder)
    assert text.startswith("MIT License\n\nCopyright (c) 20")
    assert "the makers of kite" in text
    assert "{" not in text
    report = export_hf(trained.url, tmp_path / "other", licence="CC-BY-4.0")
    assert "SPDX-License-Identifier: CC-BY-4.0" in licence_of(report.folder)
    assert "https://spdx.org/licenses/CC-BY-4.0.html" in licence_of(report.folder)
    assert "\nlicense: other\nlicense_name: cc-by-4.0\n" in card_of(report.folder)
    own = tmp_path / "TERMS"
    own.write_text("Only for hunting.\n")
    report = export_hf(trained.url, tmp_path / "own", licence=str(own))
    assert report.licence == "other"
    assert licence_of(report.folder) == "Only for hunting.\n"
    with pytest.raises(UsageError, match="neither a file nor an SPDX id"):
        export_hf(trained.url, tmp_path / "bad", licence="all rights reserved")
    assert not (tmp_path / "bad").exists()


def test_licence_files_of_an_import_come_out_again(trained: Store, tmp_path: Path) -> None:
    folder = export_hf(trained.url, tmp_path / "out").folder
    (folder / "SHA256SUMS").unlink()
    (folder / "LICENSE").write_text("SPDX-License-Identifier: LicenseRef-Kite\n\nBe kind.\n")
    (folder / "NOTICE.txt").write_text("Made by kites.\n")
    store = open_store(str(tmp_path / "imported"))
    import_hf(folder, store)
    report = export_hf(store.url, tmp_path / "again")
    assert report.licence == "LicenseRef-Kite"
    for name in ("LICENSE", "NOTICE.txt"):
        assert (report.folder / name).read_bytes() == (folder / name).read_bytes()
        assert name in card_of(report.folder)


def test_a_licence_file_that_is_not_there_or_no_text_is_no_licence(
    trained: Store, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="neither a file nor an SPDX id"):
        export_hf(trained.url, tmp_path / "bad", licence="LICENCE.txtt")
    latin = tmp_path / "latin.txt"
    latin.write_bytes("für Falken".encode("latin-1"))
    with pytest.raises(UsageError, match="cannot be read as UTF-8"):
        export_hf(trained.url, tmp_path / "bad", licence=str(latin))
    assert not (tmp_path / "bad").exists()


def test_special_ids_and_chat_template_of_an_import_come_out_again(
    trained: Store, tmp_path: Path
) -> None:
    folder = export_hf(trained.url, tmp_path / "out").folder
    (folder / "SHA256SUMS").unlink()
    ids = {"eos_token_id": [0, 7], "pad_token_id": 9}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | ids))
    (folder / "generation_config.json").unlink()
    tokens = json.loads((folder / "tokenizer_config.json").read_text())
    template = {"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens | template))
    (folder / "LICENSE").rename(folder / "License.txt")
    store = open_store(str(tmp_path / "imported"))
    commit = import_hf(folder, store)
    assert list(commit.facts["licences"]) == ["License.txt"]
    again = export_hf(store.url, tmp_path / "again").folder
    for name in ("config.json", "generation_config.json"):
        assert json.loads((again / name).read_text()).items() >= ids.items()
    assert json.loads((again / "tokenizer_config.json").read_text()).items() >= template.items()
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": "x"}))
    with pytest.raises(UsageError, match="eos_token_id is 'x'"):
        import_hf(folder, open_store(str(tmp_path / "other")))


@pytest.mark.parametrize("form", ["binary", "upper", "blank"])
def test_sums_as_other_tools_write_them_are_read(trained: Store, tmp_path: Path, form: str) -> None:
    folder = export_hf(trained.url, tmp_path / "out").folder
    sums = (folder / "SHA256SUMS").read_text()
    lines = [line.split("  ") for line in sums.splitlines()]
    (folder / "SHA256SUMS").write_text(
        {
            "binary": "".join(f"{digest} *{name}\n" for digest, name in lines),
            "upper": "".join(f"{digest.upper()}  {name}\n" for digest, name in lines),
            "blank": sums + "\n",
        }[form]
    )
    import_hf(folder, open_store(str(tmp_path / form)))


def test_the_card_is_filled_from_the_manifests(folder_store: Store, tokenizer: Tokenizer,
                                               tmp_path: Path) -> None:  # fmt: skip
    put_tokenizer(folder_store, tokenizer)
    commit = save_model(
        folder_store,
        SHAPES["llama"],
        tokenizer,
        facts={
            "seconds": 120.0,
            "world": 4,
            "layout": {"data": 2, "tensor": 2},
            "last_loss": 3.25,
            "validation_loss": 3.5,
        },
    )
    packages = {"apache2-doc": {"version": "2.4|1", "licence": "Apache-2.0", "pages": 9}}
    commit_manifest(folder_store, Manifest("sources", "s", facts={"packages": packages}))
    languages = {"ar": {"documents": 7, "bytes": 99}, "en": {"documents": 60, "bytes": 900}}
    counters = {"pages_in": 12345, "documents": 67}
    commit_manifest(
        folder_store, Manifest("corpus", "c", counters=counters, facts={"languages": languages})
    )
    facts = {
        "tokenizer": tokenizer.digest,
        "documents": {"train": 60, "validation": 7},
        "tokens": {"train": 4000, "validation": 321},
        "sources": {"web": {"train": {"bytes": 9000}}, "own": {"train": {"bytes": 999}}},
    }
    commit_manifest(folder_store, Manifest("tokens", "t", facts=facts))
    score = {"language": "en", "documents": 7, "bytes": 4096, "bits_per_byte": 1.2345,
             "xz_bits_per_byte": 2.5}  # fmt: skip
    evaluation = {"context": 64, "languages": [score], "total": score | {"language": "total"}}
    folder_store.put("eval/000000000005-1.json", seal(evaluation))
    card = card_of(export_hf(folder_store.url, tmp_path / "out").folder)
    for text in (
        "library_name: transformers\n",
        "language:\n- ar\n- en\n",
        "| apache2-doc | 2.4\\|1 | Apache-2.0 |",
        "67 documents were kept of 12,345 pages",
        "| en | 60 | 900 |\n| ar | 7 | 99 |",
        "| tokens, validation | 321 |",
        "| bytes of text, train | 9,999 |",
        f"| tokenizer (SHA-256) | {tokenizer.digest} |",
        "| tokenizer | byte-level BPE, 300 items |",
        "| wall time | 120 s |",
        "| processes, and their time together | 4, 480 s |",
        "| layout | data 2, tensor 2 |",
        "| held-out loss, nats a token | 3.5000 |",
        "| en | 7 | 4,096 | 1.234 | 2.500 |",
        "| parameters | 37,792 |",
        commit.save_id,
    ):
        assert text in card


def test_a_card_of_an_empty_store_guesses_nothing(folder_store: Store, tmp_path: Path) -> None:
    save_model(folder_store, SHAPES["gpt2"], None, facts={"tokens": None})
    card = card_of(export_hf(folder_store.url, tmp_path / "out").folder)
    for text in (
        "Sources and their licences are not recorded",
        "The corpus is not in the store",
        "This folder has no tokenizer.",
        "Tokens seen and time spent are not recorded",
        "No evaluation of this checkpoint",
    ):
        assert text in card


class SageMaker(BaseHTTPRequestHandler):
    """What the example asks of SageMaker's two APIs: JSON 1.1 for the control plane, REST for the
    invocation. State is in the server: `things` by kind and name, `asked` in order."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/invocations"):
            name = self.path.split("/")[2]
            server.asked.append(("Invoke", json.loads(body)))
            assert server.things["Endpoint"][name]["EndpointStatus"] == "InService"
            return self._answer(200, [{"generated_text": "flew"}])
        operation = self.headers["X-Amz-Target"].removeprefix("SageMaker.")
        given = json.loads(body)
        server.asked.append((operation, given))
        verb, kind = next(
            (v, operation.removeprefix(v))
            for v in ("Create", "Describe", "Delete")
            if operation.startswith(v)
        )
        name, known = given[f"{kind}Name"], server.things.setdefault(kind, {})
        if (verb == "Create") == (name in known):
            wrong = {"__type": "ValidationException", "message": f"{kind} {name} {operation}"}
            return self._answer(400, wrong)
        if verb == "Create":
            known[name] = {**given, "EndpointStatus": "Creating", "looks": 0}
            return self._answer(200, {f"{kind}Arn": f"arn:aws:sagemaker:{REGION}:1:{kind}/{name}"})
        if verb == "Delete":
            del known[name]
            return self._answer(200, {})
        known[name]["looks"] += 1
        if known[name]["looks"] > 2:
            known[name]["EndpointStatus"] = server.ends
        status = {"EndpointName": name, "EndpointStatus": known[name]["EndpointStatus"]}
        return self._answer(200, status | {"FailureReason": "no GPU left"})

    def _answer(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def sagemaker() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), SageMaker)
    server.things, server.asked, server.ends = {}, [], "InService"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


BOTO3 = '''"""The two calls of boto3 that the example makes, by botocore, which boto3 is made of."""
import botocore.session


def client(name):
    made = botocore.session.get_session().create_client(name)
    if name == "s3":
        made.upload_file = lambda file, bucket, key: made.put_object(
            Bucket=bucket, Key=key, Body=open(file, "rb").read()
        )
    return made
'''


class Example:
    """The example as its users run it: a program of the exported folder."""

    def __init__(self, folder: Path, server: Any, path: Path) -> None:
        self.folder = folder
        address = f"http://127.0.0.1:{server.server_address[1]}"
        self.environ = os.environ | {
            "AWS_ENDPOINT_URL_S3": os.environ["AWS_ENDPOINT_URL"],
            "AWS_ENDPOINT_URL_SAGEMAKER": address,
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": address,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_MAX_ATTEMPTS": "1",
        }
        if importlib.util.find_spec("boto3") is None:
            path.mkdir()
            (path / "boto3.py").write_text(BOTO3)
            self.environ["PYTHONPATH"] = str(path)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.folder / "deploy_sagemaker.py"), *arguments]
        return subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=120
        )


@pytest.fixture
def example(trained: Store, tmp_path: Path, seaweed: Any, sagemaker: Any) -> Example:
    export_hf(trained.url, tmp_path / "kite_1.0")
    return Example(tmp_path / "kite_1.0", sagemaker, tmp_path / "lib")


def deployment(s3_store: Store) -> list[str]:
    bucket, _, prefix = s3_store.url.removeprefix("s3://").partition("/")
    return [
        *("--bucket", bucket, "--prefix", prefix, "--role", ROLE, "--image", IMAGE),
        *("--poll", "0.01", "--prompt", "The kite"),
    ]


def test_the_example_deploys_asks_and_deletes(
    example: Example, s3_store: Store, sagemaker: Any
) -> None:
    """Uploads go to a real S3 server. SageMaker's control plane runs nowhere but at AWS: in its
    place stands a server that holds its state and speaks its protocol, of which botocore checks
    what is asked; that AWS accepts the image and starts it is not tested here."""
    done = example(*deployment(s3_store))
    assert done.returncode == 0, done.stderr
    assert '[{"generated_text": "flew"}]' in done.stdout
    uploaded = {o.key: s3_store.get(o.key) for o in s3_store.list("kite-1-0/")}
    assert uploaded == {f"kite-1-0/{p.name}": p.read_bytes() for p in example.folder.iterdir()}
    asked = dict(sagemaker.asked)
    container = asked["CreateModel"]["PrimaryContainer"]
    assert container["Image"] == IMAGE
    assert container["ModelDataSource"] == {
        "S3DataSource": {
            "S3Uri": f"{s3_store.url}/kite-1-0/",
            "S3DataType": "S3Prefix",
            "CompressionType": "None",
        }
    }
    assert asked["CreateEndpointConfig"]["ProductionVariants"][0]["ModelName"] == "kite-1-0"
    assert [name for name, _ in sagemaker.asked].count("DescribeEndpoint") == 3
    assert asked["Invoke"]["inputs"] == "The kite"
    done = example("--delete")
    assert done.returncode == 0, done.stderr
    assert sagemaker.things == {"Model": {}, "EndpointConfig": {}, "Endpoint": {}}
    done = example("--delete")
    assert done.returncode == 0, done.stderr
    assert "there is no endpoint kite-1-0" in done.stdout


def test_the_example_says_why_an_endpoint_does_not_start(
    example: Example, s3_store: Store, sagemaker: Any
) -> None:
    sagemaker.ends = "Failed"
    done = example(*deployment(s3_store))
    assert done.returncode == 1
    assert "the endpoint is Failed: no GPU left" in done.stderr
    assert "--delete --name kite-1-0" in done.stderr


def test_the_example_uploads_no_damaged_file(
    example: Example, s3_store: Store, sagemaker: Any
) -> None:
    config = example.folder / "config.json"
    config.write_bytes(config.read_bytes().replace(b"silu", b"relu"))
    done = example(*deployment(s3_store))
    assert done.returncode == 1
    assert "config.json is damaged" in done.stderr
    assert sagemaker.asked == []
    assert list(s3_store.list()) == []
