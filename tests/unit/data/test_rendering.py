"""Chat templates rendered apart: as Transformers does, and to an end whatever the template does."""

from __future__ import annotations

import threading

import pytest
from support.facts import refuses
from transformers import AutoTokenizer

from hearth.data.findings import Endless, Problem
from hearth.data.messages import Message
from hearth.data.rendering import Renderer
from hearth.data.template import ChatTemplate, computing_at_most

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ strftime_now('%Y') }}"
    "{% if add_generation_prompt %}A:{% endif %}"
)
ASK = [{"role": "user", "content": "schön \ud800"}]
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module")
def renderer():
    with Renderer(seconds=1) as renderer:
        yield renderer


def test_a_conversation_is_rendered_with_all_that_the_template_knows(renderer):
    text = renderer.render(TEMPLATE, ASK, {"bos_token": "<s>"}, [{"name": "add"}])
    assert text == '<s>user: schön \ud800\n{"name": "add"}2024A:'
    assert renderer.render("{{ messages[0].content }}", ASK, {}) == ASK[0]["content"]


@pytest.mark.parametrize("template", [LOOP, "{{ (9**9)**(9**9) }}", "{{ 'x' * 10**10 }}"])
def test_a_template_without_an_end_is_ended_and_the_next_is_rendered(renderer, template):
    with refuses(Endless, "template"):
        renderer.render(template, ASK, {})
    assert renderer.render("{{ messages|length }}", ASK, {}) == "1"


@pytest.mark.parametrize("template", ["{{ raise_exception('only one question') }}", "{% if"])
def test_the_reason_of_a_refusal_is_told(renderer, template):
    with pytest.raises(Problem) as caught:
        renderer.render(template, ASK, {})
    assert not isinstance(caught.value, Endless)
    assert "only one question" in str(caught.value) or template == "{% if"


def test_threads_take_turns(renderer):
    found = []

    def ask(number):
        conversation = [{"role": "user", "content": str(number)}]
        found.append(renderer.render("{{ messages[0].content }}", conversation, {}))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [str(number) for number in range(8)]


def test_what_computes_too_long_is_interrupted_and_the_limit_ends_with_the_block():
    with pytest.raises(ValueError, match="enough"), computing_at_most(0.1, ValueError("enough")):
        while True:
            pass
    with computing_at_most(0.05, ValueError("enough")):
        pass
    sum(range(5_000_000))


def test_a_template_that_loops_with_long_conversations_only_is_interrupted(tiny_model, monkeypatch):
    monkeypatch.setattr("hearth.data.template.SECONDS", 0.2)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{% if messages|length > 4 %}" + LOOP + "{% endif %}fine"
    template = ChatTemplate(tokenizer)
    assert template.render([Message("user", "1")]) == "fine"
    with refuses(Endless, "template"):
        template.render([Message("user", "1"), Message("assistant", "2")] * 3)
