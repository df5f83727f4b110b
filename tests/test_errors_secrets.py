"""What addresses hold of secrets stays out of messages, and nothing else does."""

from __future__ import annotations

import pytest

from workbench.errors import WorkbenchError, without_secrets

SECRET = {
    "http://me:S3CRET@host/x": "http://…@host/x",
    "http://S3CRET@host/x": "http://…@host/x",
    "http://me:S3C/R@ET@host/x": "http://…@host/x",
    "http:/me:S3CRET@host/x": "http:/…@host/x",  # as a path writes it
    "https://me:S3CRET@host/p@th": "https://…@host/p@th",
    "s3://KEY:S3/CR+ET@bucket/x?versionId=3": "s3://…@bucket/x?versionId=3",
    "https://host/x?X-Amz-Signature=S3CRET&b=S3CRET": "https://host/x?X-Amz-Signature=…&b=…",
    "https://host/x?S3CRET": "https://host/x?…",
    "https://host/x#access_token=S3CRET": "https://host/x#access_token=…",
    "https://host/x;sig=S3CRET": "https://host/x;sig=…",
    '{"url": "https://host/x?a=S3CRET", "b": 1}': '{"url": "https://host/x?a=…", "b": 1}',
    "(https://host/x?a=S3CRET) or": "(https://host/x?a=…) or",
}
PLAIN = (
    "http://127.0.0.1:9000/bucket/ep@3/m.safetensors", "https://host:8080/@user", "hf://org/name:tag@rev",
    "docker://reg:5000/img@sha256:ab", "file:///C:/x/a@b", "C:/Users/a@b", "https://host/x?revision=main",
    "https://host/x?sig=…#2", "a: b@c", "org/name@rev", "no address at all",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRET)
def test_secrets_are_left_out(text: str) -> None:
    assert without_secrets(text) == SECRET[text]
    assert "S3CRET" not in str(WorkbenchError(text, why=text, next_step=text))


@pytest.mark.parametrize("text", PLAIN)
def test_nothing_else_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["a" * 80_000 + "://", "https://" + "a:" * 40_000, "https://" + "?a" * 40_000, "x://" * 20_000]
)  # fmt: skip
def test_long_texts_end(text: str) -> None:
    assert len(str(WorkbenchError(text))) < 5000
