"""Templates in processes: what they render, how they are ended, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.errors import ContextLengthExceeded, TemplateFailed
from server.limits.off_loop import OffLoop
from server.limits.text_bound import ContextLimit, TextLimit
from server.templates.chat_template import ChatTemplate
from server.templates.pool import Templates
from tests.patience import PATIENCE_S

FOREVER = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"
LOOPS_IF_TOLD = "{% if loops %}" + FOREVER + "{% endif %}{{ bos }}{{ text }}"
MOST = TextLimit(2**20)

Use = Callable[[Templates], Awaitable[None]]


def with_templates(use: Use, timeout_s: float = 0.5) -> None:
    async def run() -> None:
        templates = Templates(timeout_s, OffLoop())
        try:
            await use(templates)
        finally:
            await templates.close()

    asyncio.run(run())


def own(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos": "<s>"}, 0.5)


def test_the_models_template_renders_as_it_would_here() -> None:
    source = "{{ bos }}{{ a }}{{ b }}{{ c | tojson }}{{ d }}{{ e }}"
    values = {"a": (1, "ü"), "b": 10**40, "c": [{"x": 1.0, "y": None}], "d": [True], "e": {"k": 2}}
    here = own(source).render(values, MOST.bytes).decode()

    async def use(templates: Templates) -> None:
        for long in (False, True, False):
            assert await templates.render_own(own(source), values, MOST, long) == here

    with_templates(use)


def test_a_template_of_the_model_that_never_ends_is_ended_and_the_next_request_served() -> None:
    async def use(templates: Templates) -> None:
        template = own(LOOPS_IF_TOLD)
        for _ in range(2):
            with pytest.raises(TemplateFailed, match=r"took longer|ran away") as caught:
                await templates.render_own(template, {"loops": True}, MOST, False)
            assert caught.value.param == "messages"
            served = templates.render_own(template, {"text": "hi"}, MOST, False)
            assert await served == "<s>hi"

    with_templates(use)


def test_a_long_conversation_does_not_hold_up_a_short_one() -> None:
    async def use(templates: Templates) -> None:
        template = own(LOOPS_IF_TOLD)
        long = asyncio.create_task(templates.render_own(template, {"loops": True}, MOST, True))
        short = templates.render_own(template, {"text": "hi"}, MOST, False)
        assert await asyncio.wait_for(short, PATIENCE_S) == "<s>hi"
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        again = templates.render_own(template, {"text": "hi"}, MOST, True)
        assert await again == "<s>hi"  # not the answer that nobody took

    with_templates(use, timeout_s=PATIENCE_S)


HUGE = "{% for i in range(3000) %}{{ 'x' * 10000 }}{% endfor %}"


@pytest.mark.parametrize("source", [HUGE, "{{ 'x' * 5000000 }}", "{{ 'é' * 524289 }}"])
def test_what_a_template_writes_is_bounded_and_the_limit_named(source: str) -> None:
    limit = TextLimit(2**20, ContextLimit(512))

    async def use(templates: Templates) -> None:
        with pytest.raises(ContextLengthExceeded, match=r"is 512.*1048576 bytes") as caught:
            await templates.render_own(own(source), {}, limit, False)
        assert caught.value.param == "messages"
        with pytest.raises(ContextLengthExceeded, match=r"is 512.*1048576 bytes") as caught:
            await templates.render_callers(source, {}, {}, limit, False)
        assert caught.value.param == "chat_template"

    with_templates(use, timeout_s=PATIENCE_S)


def test_what_fills_the_limit_is_rendered() -> None:
    async def use(templates: Templates) -> None:
        text = await templates.render_own(own("{{ 'é' * 524288 }}"), {}, MOST, False)
        assert len(text.encode()) == MOST.bytes

    with_templates(use, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("source", ["{{ 'x' * 10 ** 10 }}", "{{ '\\ud800' }}", "{{ 1 / 0 }}"])
def test_a_template_that_breaks_is_the_requests_error_alone(source: str) -> None:
    async def use(templates: Templates) -> None:
        render: Any
        for render in (
            templates.render_own(own(source), {}, MOST, False),
            templates.render_callers(source, {}, {}, MOST, False),
        ):
            with pytest.raises(TemplateFailed):
                await render
        assert await templates.render_own(own("{{ x }}"), {"x": 1}, MOST, False) == "1"

    with_templates(use)
