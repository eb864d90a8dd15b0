"""NetworkManager's profiles with a fixed address, all else as it was."""

from __future__ import annotations

import configparser
from dataclasses import replace

from ansible.module_utils.hearth_node.network import keyfile
from ansible.module_utils.hearth_node.network.change import without_secrets
from ansible.module_utils.hearth_node.network.plan import Wanted
from hypothesis import given
from hypothesis import strategies as st

PROFILE = """\
# mine
[connection]
id=Wired connection 1

[ipv4]
# address1=10.0.0.5/8
dns-search=home.arpa;
method=auto

[ipv6]
address1=fd00::1/64
"""
WANTED = Wanted("192.168.1.40", 24, "192.168.1.1", ("192.168.1.1", "9.9.9.9"))


def read(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(delimiters="=", interpolation=None, strict=True)
    parser.optionxform = str
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def test_a_profile_gets_the_address_and_keeps_the_rest():
    after = keyfile.with_address(PROFILE, "enp5s0", "u-u", WANTED)
    assert after.startswith("# mine\n")
    assert "\n# address1=10.0.0.5/8\n" in after
    assert read(after) == {
        "connection": {"id": "Wired connection 1", "uuid": "u-u", "interface-name": "enp5s0"},
        "ipv4": {
            "dns-search": "home.arpa;",
            "method": "manual",
            "address1": "192.168.1.40/24,192.168.1.1",
            "dns": "192.168.1.1;9.9.9.9;",
        },
        "ipv6": {"address1": "fd00::1/64"},
    }
    assert keyfile.with_address(after, "enp5s0", "u-u", WANTED) == after


def test_an_mtu_is_set_in_the_cables_section():
    after = keyfile.with_address(PROFILE, "enp5s0", "u-u", replace(WANTED, mtu=9000))
    assert read(after)["ethernet"] == {"mtu": "9000"}


def test_another_address_stays_and_the_one_in_use_gives_way():
    text = (
        "[ipv4]\naddress1=192.168.1.9/24,192.168.1.254\naddress2=10.0.0.5/8\n"
        "gateway=192.168.1.254\nroute1=10.9.0.0/16,192.168.1.2\nmethod=manual\n"
    )
    wanted = Wanted("192.168.1.40", 24, "192.168.1.1", instead="192.168.1.9")
    after = read(keyfile.with_address(text, "e", "u", wanted))["ipv4"]
    assert after == {
        "address1": "192.168.1.40/24,192.168.1.1",
        "address2": "10.0.0.5/8",
        "route1": "10.9.0.0/16,192.168.1.2",
        "method": "manual",
    }


def test_power_saving_goes_off():
    assert read(keyfile.without_power_saving("[wifi]\nssid=Home\npowersave=3\n")) == {
        "wifi": {"ssid": "Home", "powersave": "2"}
    }


def test_sections_are_taken_out_whole():
    text = "[a]\nx=1\n[.nmmeta]\nvolatile=true\n[b]\ny=2\n"
    assert read(keyfile.without_sections(text, ".nmmeta")) == {"a": {"x": "1"}, "b": {"y": "2"}}


NAMES = st.text("abcdef-", min_size=1, max_size=4)
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=6)
FILES = st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=4)


@given(FILES, st.dictionaries(NAMES, st.dictionaries(NAMES, st.none() | VALUES, max_size=3)))
def test_what_is_asked_for_changes_and_nothing_else(before, changes):
    text = "\n\n".join(
        "\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items())])
        for name, values in before.items()
    )
    expected = {name: dict(values) for name, values in before.items()}
    for name, values in changes.items():
        for key, value in values.items():
            if value is not None:
                expected.setdefault(name, {})[key] = value
            else:
                expected.get(name, {}).pop(key, None)
    after = keyfile.changed(text, changes)
    assert read(after) == expected
    assert keyfile.changed(after, changes) == after


def test_no_secret_is_shown():
    shown = without_secrets(
        'password: "s3cret"\n  auth: {x: 1}\n    psk=s3cret\nwep-key0=s3cret\n'
        "client-key-password: s3cret\nssid=Home\n"
    )
    assert "s3cret" not in shown
    assert "ssid=Home" in shown
    assert "psk=(hidden)" in shown
