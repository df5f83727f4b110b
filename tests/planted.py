"""Secrets planted into logs, arguments, variables and stacks, and the search for them in what is written."""

from __future__ import annotations

import base64
import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.evidence.casefile import CaseWriter

# Kind: the secret, and a line of a log with it in place of §§.
LINES: dict[str, tuple[str, str]] = {
    "jwt": (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl",
        "[2026-11-29 18:00:00] auth with §§ done",
    ),
    "azure sas": (
        "pAzX9qWErTy",
        "downloading https://acc.blob.core.windows.net/c/m?sv=2023&sig=§§&se=2026",
    ),
    "gcs signed url": (
        "9f8e7d6c5b4a3928",
        "GET https://storage.googleapis.com/b/o?X-Goog-Signature=§§&e=1",
    ),
    "s3 presigned": (
        "abcdef0123456789ff",
        "https://b.s3.amazonaws.com/k?X-Amz-Credential=A&X-Amz-Signature=§§",
    ),
    "basic auth in a url": ("Tr0ub4dor", "git clone https://bob:§§@git.corp.example/r.git"),
    "netrc": ("s3cr3tpw", "machine github.com login bob password §§"),
    "kubeconfig": ("kubetok123abc", "    token: §§"),
    "hf token in argv": (
        "hf_abcdefghijklmnopqrst",
        "+ python -m sglang.launch_server --hf-token §§ --tp 2",
    ),
    "wandb": ("0123456789abcdef0123456789abcdef01234567", "wandb: api key §§"),
    "slack webhook": ("T000/B000/XXXXXXXXXXXX", "posting to https://hooks.slack.com/services/§§"),
    "discord webhook": ("998877/zzYYxxWW", "posting to https://discord.com/api/webhooks/§§"),
    "database url": ("pgpass99", "DATABASE_URL=postgres://svc:§§@db.internal:5432/prod"),
    "redis url": ("redpass77", "cache redis://:§§@cache:6379/0"),
    "cookie": ("sess_9a8b7c", "Cookie: sid=§§; theme=dark"),
    "set-cookie": ("sess_1q2w3e", "Set-Cookie: session=§§; Path=/"),
    "authorization in a traceback": (
        "abc.def.ghi",
        "ValueError: 401 with {'Authorization': 'Bearer §§'}",
    ),
    "pem in one line": (
        "MIIEvQIBADANBg",
        r'key = "-----BEGIN PRIVATE KEY-----\n§§\n-----END PRIVATE KEY-----"',
    ),
    "ssh key": ("AAAAC3NzaC1lZDI1NTE5AAAAIA", "ssh-ed25519 §§ bob@laptop"),
    "export": ("f00s3cret", "export FOO_SECRET=§§"),
    "base64 blob": ("U2VjcmV0UGF5bG9hZFRoYXRJc0xvbmc", "payload §§= received"),
    "mail, user": ("alice.smith", "sent by §§@mail.example.com"),
    "mail, host": ("bigcorp", "reply to someone@§§.co"),
    "prompt": (
        "appendicitis",
        "[2026-11-29 18:00:00 TP0] input: Patient has §§ and asks about the model",
    ),
    "prompt in another language": ("blutdruck", "Generating for prompt: mein §§ ist hoch, was tun"),
    "prompt in quotes": ("illness", "text='the server and my §§'"),
    "ipv6": ("2001:db8:85a3::8a2e:370:7334", "connect to [§§]:29500 failed"),
    "ipv4 mapped": ("::ffff:10.1.2.3", "peer §§"),
    "ipv4": ("10.11.12.13", "from §§ port 5"),
    "mac": ("de:ad:be:ef:00:11", "eth0 hwaddr §§"),
    "node in NCCL": ("gpunode-xq17", "§§:4711:4788 [3] NCCL INFO Bootstrap : Using eth0"),
    "node in torchrun": (
        "trainbox9",
        "[W1129 18:00:00.000000000 socket.cpp:752] [c10d] The client socket has failed to connect "
        "to [§§]:29500 (errno: 110 - Connection timed out).",
    ),
    "node of harmless words": ("gpu-node-17", "[c10d] connect to §§:29500"),
    "user in /home": ("jdoe", "/home/§§/proj/run.py: error"),
    "user in /Users": ("janedoe", '  File "/Users/§§/x.py", line 3, in f'),
    "user in /data/home": ("kmueller", "/data/home/§§/m"),
    "user in /scratch": ("lkim", "/scratch/§§/ckpt"),
    "user in ~": ("rroe", "~§§/run.sh"),
    "user=": ("mmustermann", "user=§§ started"),
    "windows user": ("jsmith", "login CORP\\§§ failed"),
    "azure connection string": (
        "Zm9vYmFyYmF6",
        "AccountName=foo;AccountKey=§§;EndpointSuffix=core",
    ),
    "password of digits": ("48151623", "password: §§"),
    "pin of digits": ("8675309", "+ tool --pin §§ --tp 2"),
    "otp": ("904817", "otp=§§"),
    "aws key": ("wJalrXUtnFEMIK7MDENG", "aws_secret_access_key = §§"),
    "google key": ("AIzaSyA1234567890abcdefghijklmnopqrstu", "key §§"),
    "npm": ("npm_abcdefghij1234567890", "//registry/:_authToken=§§"),
    "docker config": ("dXNlcjpwYXNz", '{"auths": {"https://index": {"auth": "§§"}}}'),
    "curl -u": ("hunter2", "curl -u admin:§§ http://h"),
    "curl -H": ("tok_live_123", 'curl -H "X-Api-Key: §§" http://h'),
    "sshpass": ("pw12ab", "sshpass -p §§ ssh h"),
    "mysql": ("dbpw77", "mysql -uroot '-p=§§' -h db"),
    "json": ("sk-ant-abc123def456ghi", '{"api_key":"§§","model":"m"}'),
    "escaped json": ("esc12345", '"{\\"api_key\\": \\"§§\\"}"'),
    "yaml": ("topsecretval", "client_secret: §§"),
    "camel case": ("camel12345", "apiKey=§§"),
    "header in brackets": ("brk12345", "headers[authorization]=§§"),
    "request": ("privatetext", "Req(rid=1, origin_input_text='§§', ids=[1])"),
    "prompt as code": ("patientname", '    prompt = "§§ is ill"'),
    "uuid": ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "rid §§ aborted"),
    "card": ("4111111111111111", "paid with §§"),
    "phone": ("+15551234567", "call §§ now"),
    "social security": ("078-05-1120", "my number §§"),
    "customer in a path": ("acmeplant", "https://acme.example/§§/m"),
    "customer in a host": ("vault.acmecorp.com", "resolve §§ failed"),
    "pod": (
        "fraud-detector-7d9f",
        "§§ | [2026-11-29 18:00:00 TP0] Load weight begin. avail mem=1 GB",
    ),
    "adapter": ("acme-legal-v3", "[2026-11-29 18:00:00] Loading LoRA adapter §§ from /models/x"),
    "message of an exception": ("projectzeus", "RuntimeError: cannot open §§"),
    "key error": ("internalcodename", "KeyError: '§§'"),
    "folder of a program": ("projecthera", '  File "/opt/§§/serve.py", line 3, in f'),
    "folder of an environment": (
        "projectares",
        '  File "/x/§§/lib/python3.12/site-packages/torch/x.py", line 3, in f',
    ),
    "dumped environment": ("sm00thie", "environ({'HOME': '/root', 'MY_PASSWORD': '§§'})"),
    "namespace": ("nspass1", "Namespace(api_key='§§', tp=2)"),
    "argv as python": ("arrpass1", "['--api-key', '§§', '--tp', '2']"),
    "argv as json": ("arrpass2", '["--api-key","§§"]'),
    "passphrase": ("purple elephant", 'passphrase: "§§"'),
    "cyrillic": ("пароль123", "secret=§§"),
    "chinese prompt": ("机密提示词", "[2026-11-29 18:00:00] text §§"),
    "behind escape codes": ("ansipw77", "\x1b[31mpassword\x1b[0m: §§"),
    "between carriage returns": ("crsecret9", "progress\rtoken=§§\rdone"),
    "behind a tab": ("tabsecret9", "token\t§§"),
    "bearer, lower case": ("abcd1234efgh", "authorization: bearer §§"),
    "in prose": ("issecret12", "the api key is §§"),
    "set -x in quotes": ("quotedpw1", "++ curl -H 'Authorization: Bearer §§' http://h"),
    "set -x, --api-k": ("shortflag1", "+ python -m sglang.launch_server --api-k §§ --tp 2"),
    "set -x, bash -c": ("inbash12", "+ bash -c 'exec sglang serve --api-key §§ --tp 2'"),
    "grpc": ("zeusnode", "grpc://§§:5000"),
    "password glued to a flag": ("gluedpw7", "+ mysql -uroot -p§§ db"),
    "card in groups": ("4000 1234 5678 9010", "error for §§"),
    "recovery code": ("1234-5678", "recovery code §§"),
    "phone in brackets": ("123-4567", "call (555) §§"),
    "word and number": ("test123", "login with §§"),
    "password of digits in prose": ("58261734", "password is §§"),
    "pwd of digits": ("58261735", "[2026-11-29 18:00:00 TP0] pwd §§"),
    "passcode": ("582617", "passcode §§"),
    "verification code": ("482913", "verification code: §§"),
    "password in an exception": ("99817221", "ValueError: password §§ wrong"),
    "password after its number": ("58261736", "the server took §§ as password"),
    "social security, plain": ("078051120", "ssn §§"),
    "phone in groups": ("555 123 4567", "phone §§"),
    "set -x, vault": ("58261737", "+ vault login §§"),
    "set -x, echo into sudo": ("58261738", "+ echo §§ | sudo -S"),
    "set -x, echo in bash -c": ("58261739", "+ bash -c 'echo §§ | sudo -S ls'"),
    "set -x, --code": ("58261740", "+ sglang serve --tp 8 --code §§"),
    "default of a key": ("58261741", 'api_key = os.environ.get("X", §§)'),
    "date of birth": ("13.05.1980", "born §§"),
    "date of birth alone": ("14.05.1980", "loaded §§ and began"),
    "licence": ("58261742", "license key §§ accepted"),
    "customer's number": ("58261743", "customer id §§"),
    "code of digits": ("582618", "the code is §§"),
    "password in a path": ("58261747", "password at /opt/sglang/§§"),
    "number of an account in a path": ("58261748", "reading /data/§§/model"),
    "set -x, behind sudo": ("58261749", "+ sudo -S python -m sglang.launch_server --tp 8 <<< §§"),
    "tokens in quotes": ("15498', '13', '997", "got ['§§']"),
    "tokens in a table": ("15499 | 14 | 998", "got §§"),
    "a long number of nothing": ("58261745", "RuntimeError: invalid §§"),
    "a field of nothing": (
        "58261746",
        "[x] server_args=ServerArgs(model_path='m', code=§§, tp_size=2)",
    ),
    "a number alone": ("58261744", "§§"),
    "tokens": ("15496, 11, 995", "tokens §§"),
    "tokens in brackets": ("15497 12 996", "[§§ …]"),
    "two tokens": ("128000 9906", "output §§"),
    "cloud id": ("ocid1.user.oc1..aaaa", "user §§"),
}
PEM = (
    "MIIEpAIBAAKCAQEAplanted",
    "-----BEGIN RSA PRIVATE KEY-----\n§§\n-----END RSA PRIVATE KEY-----",
)
VARIABLES = {
    "MY_API_KEY": "envkey_5f1c",
    "SGLANG_API_KEY": "envkey_7a2d",
    "NCCL_TOKEN": "envtok_9e3b",
    "HTTPS_PROXY": "http://u:envproxy_4c@proxy:3128",
    "SGLANG_NOTE": "envnote_6d of a customer",
    "SGLANG_LICENSE": "723456781",
}
ARGUMENTS = [
    *(
        "--api-key",
        "argkey_1a",
        "--api-k",
        "argkey_2b",
        "--api_key=argkey_3c",
        "--admin-api-key",
        "argkey_4d",
    ),
    *(
        "--model-path",
        "https://bob:argurl_5e@hub.example/m?sig=argsig_6f",
        "--served-model-name",
        "argname_7g",
    ),
    *("--unheard-of", "argval_8h", "--hicache-storage", "redis://:argred_9i@cache:6379"),
    *("--code", "723456782", "--code=723456783"),
    *("--model-loader-extra-config", '{"token": "argjson_0j"}'),
]
# A shorter one may be a part of another word by chance.
_LONG = 8
_IN_OTHERS = re.compile(r"\b(?:env|arg)\w{3,9}_\w+|\b72345678\d\b")
SECRETS: dict[str, str] = {
    **{secret: kind for kind, (secret, _) in LINES.items()},
    PEM[0]: "body of a PEM key",
    **{secret: "a variable" for text in VARIABLES.values() for secret in _IN_OTHERS.findall(text)},
    **{secret: "an argument" for text in ARGUMENTS for secret in _IN_OTHERS.findall(text)},
}


def log(*kinds: str) -> str:
    """Return lines with these kinds of secrets, or all."""
    return "\n".join(
        text.replace("§§", secret)
        for secret, text in ([LINES[kind] for kind in kinds] if kinds else [*LINES.values(), PEM])
    )


def found_in(data: bytes | str) -> list[str]:
    """Return the kinds of planted secrets that are in some bytes, also where they are packed or escaped."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    texts = [text for part in _unpacked(raw) for text in (part, _unescaped(part))]
    return sorted(
        kind
        for secret, kind in SECRETS.items()
        if any(_holds(text, secret.encode()) for text in texts)
    )


def _holds(text: bytes, secret: bytes) -> bool:
    if len(secret) >= _LONG:
        return secret in text
    at = text.find(secret)
    while at >= 0:
        around = text[max(at - 1, 0) : at] + text[at + len(secret) : at + len(secret) + 1]
        if not re.search(rb"[0-9A-Za-z]", around):
            return True
        at = text.find(secret, at + 1)
    return False


def _unescaped(text: bytes) -> bytes:
    return re.sub(
        rb"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)).encode("utf-8", "surrogatepass"), text
    )


def _unpacked(raw: bytes) -> Iterator[bytes]:
    yield raw
    if raw[:2] == b"\x1f\x8b":
        yield gzip.decompress(raw)
    for packed in re.findall(rb"[A-Za-z0-9+/=]{200,}", raw):
        try:
            yield zlib.decompress(base64.b64decode(packed), 47)
        except (ValueError, zlib.error):
            continue


def in_case(path: Path) -> list[str]:
    """Return the kinds of planted secrets that are in a case, its names and its files."""
    with zipfile.ZipFile(path) as case:
        held = [case.read(name) for name in case.namelist()]
        names = "\n".join(case.namelist())
    return sorted({kind for data in (*held, names) for kind in found_in(data)})


@pytest.fixture
def no_secret_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that no planted secret is in any case that a test writes, in this process or by another."""
    add = CaseWriter.add
    leaked: list[str] = []

    def seen(self: CaseWriter, name: str, data: str | bytes) -> None:
        add(self, name, data)
        leaked.extend(f"{name}: {kind}" for kind in found_in(data))

    monkeypatch.setattr(CaseWriter, "add", seen)
    yield
    for case in tmp_path.glob("*.zip"):
        if zipfile.is_zipfile(case):
            leaked += [f"{case.name}: {kind}" for kind in in_case(case)]
    assert leaked == []
