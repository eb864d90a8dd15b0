"""Addresses: a credential is found wherever it stands, and no text shows it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.base.addresses import credential_in, hidden, is_secret_name, without_credentials
from hearth.base.errors import HearthError

PASSWORD = "Geheim7Wort"

WITH_PASSWORD = [
    "sftp://ada:P@nas.home/runs",
    "simplecache::ftp://u:P@h/x",
    "zip://x::ftp://u:P@h/x.zip",
    "zip::simplecache::ftp://u:P@h/x",
    "ftp://u:P@h/x::simplecache",
    "ftp://u:pa/P@h",
    "ftp://u:p#P@h",
    "ftp://u:p?P@h",
    "ftp://u:p@P@h",
    "ftp://u:p::P@h",
    "ftp://u:p P@h",
    "ftp://u:P/x",
    "ftp://:P@h",
    "https://h/x?sig=P",
    "https://h/x?P",
    "https://h/x#P",
    "https://h/x;token=P",
    "https://h/x&api_key=P",
    "az://c/x?sas=P",
    "abfs://c@account.dfs.core.windows.net/x?sig=P",
    "sftp://u%3AP@h",
    "sftp://u%3AP%40h",
    "sftp://u%253AP%2540h",
    "memory://x?key=P",
    "memory://key=P/x",
    "s3://bucket/secretKey=P/x",
    "s3://AKIAIOSFODNN7EXAMPLE/x/P",
    "jupyter://http://u:P@h:8888/x",
    "s3+ftp://u:P@h",
    "Ftp://u:P@h",
    "file://u:P@h/x",
    "file:///x::ftp://u:P@h",
    "/mnt/x::ftp://u:P@h",
    "u:P@ftp://h/x",
    "ftp://u\uff1aP\uff20h",
    "ftp\uff1a//u:P@h",
    "ada:P@nas:/runs",
    "hf://ada/hf_P",
    "https://ghp_PPPP@github.com/x",
]

WITHOUT = [
    "s3://bucket/runs",
    "s3://bucket/of a person's/runs",
    "s3://bucket/date=2026-11-29/lr=0.1",
    "s3://bucket/monkey=3/x@y",
    "gs://bucket",
    "abfs://container@account.dfs.core.windows.net/runs",
    "sftp://ada@nas.home:22/srv/runs",
    "sftp://nas.home:2222/srv/a:b",
    "sftp://[fe80:0:0:0:0:0:0:1]:22/runs",
    "simplecache::s3://bucket/runs",
    "memory://bucket/runs",
    "file:///mnt/nas",
    "smb://nas/share/runs",
    "hf://datasets/ada/runs",
    "webdav://cloud.home/remote.php/dav/files/ada",
]


@pytest.mark.parametrize("form", WITH_PASSWORD)
def test_a_credential_is_found_in_any_link_of_a_chain_and_not_shown(form):
    address = form.replace("P", PASSWORD)
    assert credential_in(address)
    assert PASSWORD not in credential_in(address)
    for shown in (hidden(address), without_credentials(hidden(address))):
        assert PASSWORD not in shown


def test_a_name_alone_is_a_token_where_the_server_is_one_of_the_web():
    assert credential_in("https://hunter@host/x")
    assert hidden("https://hunter@host/x") == "https://***@host/x"


@pytest.mark.parametrize("address", WITHOUT)
def test_an_address_without_one_is_as_it_was(address):
    assert credential_in(address) == ""
    assert hidden(address) == without_credentials(address) == address


def test_the_host_stays_visible_where_it_can():
    assert hidden("sftp://ada:x@nas.home/runs") == "sftp://***@nas.home/runs"
    assert hidden("https://nas.home/runs?sig=x") == "https://nas.home/runs?***"


SECRETS = st.text(min_size=6, max_size=40).map(lambda text: f"Q{text}Z").filter(str.strip)
PATHS = st.from_regex(r"[a-z]{1,8}(/[a-z0-9]{1,8}){0,3}", fullmatch=True)
PROTOCOLS = st.sampled_from(["s3", "ftp", "sftp", "https", "smb", "az", "webdav", "memory"])
WRAPPERS = st.sampled_from(["{}", "simplecache::{}", "zip://x::{}", "filecache::zip::{}", "{}::x"])
FORMS = st.sampled_from(
    [
        "{protocol}://ada:{secret}@{path}",
        "{protocol}://:{secret}@{path}",
        "{protocol}://ada:{quoted}@{path}",
        "{protocol}://ada%3A{quoted}%40{path}",
        "{protocol}://{path}?{quoted}",
        "{protocol}://{path}?sig={secret}",
        "{protocol}://{path}/token={secret}",
    ]
)


@given(PROTOCOLS, FORMS, WRAPPERS, PATHS, SECRETS)
def test_whatever_a_password_is_made_of_it_is_found_and_hidden(
    protocol, form, wrapper, path, secret
):
    link = form.format(protocol=protocol, path=path, secret=secret, quoted=quote(secret, safe=""))
    address = wrapper.format(link)
    assert credential_in(address)
    for shown in (hidden(address), credential_in(address)):
        assert secret not in shown and quote(secret, safe="") not in shown


@given(PROTOCOLS, PATHS, st.sampled_from(["{}", "simplecache::{}"]))
def test_a_plain_address_is_never_refused(protocol, path, wrapper):
    address = wrapper.format(f"{protocol}://{path}")
    assert hidden(address) == address


@given(st.text(max_size=300))
def test_any_text_can_be_judged_and_hidden_for_good(text):
    shown = hidden(text)
    assert hidden(shown) == shown or "***" in shown
    assert isinstance(without_credentials(text), str)


def test_long_values_are_judged_in_time():
    for piece in ("a", "%25", "::", "x=", "@", ":", "://", "a.", "key", "\u2100"):
        credential_in(piece * 20_000)
        without_credentials(f"s3://{piece * 20_000}")


def test_a_message_keeps_its_own_addresses():
    message = (
        "the endpoint (http://127.0.0.1:8000/v1) answers; see https://huggingface.co/settings/tokens."
        " Name it as http://HOST:PORT, or s3://bucket/runs."
    )
    assert without_credentials(message) == message


def test_no_finding_shows_a_credential():
    error = HearthError("the store answered 403 for https://h/x?X-Amz-Signature=abcdef1234: retry")
    assert "abcdef1234" not in str(error) + str(error.findings)
    assert "403" in str(error) and "https://h/x" in str(error)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("FSSPEC_FTP_PASSWORD", True),
        ("apiKey", True),
        ("sig", True),
        ("monkey", False),
        ("keyboard", False),
        ("NCCL_DEBUG", False),
        ("passenger", False),
    ],
)
def test_names_of_secrets_are_known_by_their_words(name, is_secret):
    assert is_secret_name(name) is is_secret
