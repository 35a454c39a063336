"""The official openai client for Python, unchanged, against a shoal.

Environment: SHOAL_BASES and SHOAL_ADMINS, the agents' API and admin addresses (host:port), separated by commas.
Prints "ok NAME" or "FAIL NAME: REASON" for each check; exits 1 where one failed.
"""
import asyncio
import concurrent.futures
import json
import os
import sys
import time
import traceback
import urllib.request

import openai

BASES = ["http://%s/v1" % a for a in os.environ["SHOAL_BASES"].split(",")]
ADMINS = os.environ["SHOAL_ADMINS"].split(",")
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Say something about the sea."},
]

clients = [openai.OpenAI(base_url=b, api_key="none-needed", max_retries=0, timeout=30) for b in BASES]
client = clients[0]
model = ""


def check_models():
    global model
    models = list(client.models.list())
    assert models, "no model is listed"
    assert len({m.id for m in models}) == len(models), "a model is listed twice: %s" % models
    assert all(m.object == "model" for m in models), models
    model = models[0].id


def check_model_retrieve():
    assert client.models.retrieve(model).id == model


def check_chat():
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=8)
    assert answer.object == "chat.completion" and answer.model, answer
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content, answer
    assert choice.finish_reason in ("stop", "length"), answer
    assert answer.usage.prompt_tokens > 0 and 0 < answer.usage.completion_tokens <= 8, answer.usage


def check_chat_names_its_peer():
    raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, max_tokens=4)
    assert raw.headers.get("x-shoal-peer") in ("a1", "a2", "a3"), dict(raw.headers)
    assert raw.headers.get("x-shoal-reason"), dict(raw.headers)
    assert raw.parse().choices[0].message.content


def check_chat_with_parts_tools_and_unknown_fields():
    tools = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}]
    messages = [{"role": "user", "content": [{"type": "text", "text": "When is high tide?"}]}]
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=tools, max_tokens=4, temperature=0, seed=1, user="u-1",
        extra_body={"cache_salt": "s", "priority": 3}, extra_headers={"X-Request-Id": "r-1"})
    assert answer.choices, answer


def read(stream):
    """The text, the last finish reason and the usage of a stream."""
    text, finish, usage, chunks = "", None, None, 0
    for chunk in stream:
        chunks += 1
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usage, chunks


def check_stream():
    stream = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=16, stream=True,
                                            stream_options={"include_usage": True})
    text, finish, usage, chunks = read(stream)
    assert text and finish in ("stop", "length"), (text, finish)
    assert chunks > 2, "everything came in %d chunks" % chunks
    assert usage is not None and usage.prompt_tokens > 0 and usage.completion_tokens > 0, usage


def check_stream_helper():
    # Without max_tokens: this part of the client raises where an answer was cut by its length.
    with client.chat.completions.stream(model=model, messages=MESSAGES) as stream:
        events = [e.type for e in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events and final.choices[0].message.content, events


def check_stream_through_every_agent_at_once():
    def one(i):
        messages = MESSAGES + [{"role": "user", "content": "And number %d?" % i}]
        return read(clients[i % len(clients)].chat.completions.create(model=model, messages=messages, max_tokens=12, stream=True))
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for text, finish, _, _ in pool.map(one, range(24)):
            assert text and finish, (text, finish)


def check_async_stream():
    async def run():
        async with openai.AsyncOpenAI(base_url=BASES[1], api_key="none-needed", max_retries=0, timeout=30) as c:
            text = ""
            async for chunk in await c.chat.completions.create(model=model, messages=MESSAGES, max_tokens=8, stream=True):
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
            return text
    assert asyncio.run(run())


def check_completion():
    answer = client.completions.create(model=model, prompt="The sea is", max_tokens=4)
    assert answer.object == "text_completion" and answer.choices[0].text, answer
    assert "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="The sea", max_tokens=4, stream=True) if c.choices)


def check_embeddings():
    # The client asks for base64 unless told otherwise, and takes either.
    for extra in ({}, {"encoding_format": "float"}):
        answer = client.embeddings.create(model=model, input=["the sea", "a fish"], **extra)
        assert [d.index for d in answer.data] == [0, 1], answer
        assert all(len(d.embedding) > 0 and isinstance(d.embedding[0], float) for d in answer.data), answer


def expect(kind, status, param, call):
    try:
        call()
    except openai.APIStatusError as e:
        assert type(e) is kind and e.status_code == status, repr(e)
        assert e.body and e.body["message"] and e.body["type"] == "invalid_request_error", e.body
        assert e.param == param, "param is %r, not %r" % (e.param, param)
        assert "127.0.0.1" not in e.response.text, e.response.text
        return e
    raise AssertionError("no error came")


def check_unknown_model_is_not_found():
    for stream in (False, True):
        e = expect(openai.NotFoundError, 404, "model", lambda: client.chat.completions.create(
            model="no-such-model", messages=MESSAGES, stream=stream))
        assert e.code == "model_not_found", e.code


def check_empty_messages_are_a_bad_request():
    expect(openai.BadRequestError, 400, "messages", lambda: client.chat.completions.create(model=model, messages=[]))


def check_wrong_type_is_a_bad_request():
    expect(openai.BadRequestError, 400, "messages", lambda: client.chat.completions.create(
        model=model, messages="not a list"))


def in_flight():
    total = 0
    for a in ADMINS:
        with urllib.request.urlopen("http://%s/status" % a, timeout=5) as r:
            status = json.load(r)
        for p in status["peers"]:
            total += p["pending"]
            if p.get("self"):
                total += p["load"]["InFlight"] + max(0, p["load"]["Running"]) + max(0, p["load"]["Waiting"])
    return total


def check_aborted_streams_leave_nothing_behind():
    streams = []
    for i in range(12):
        stream = clients[i % len(clients)].chat.completions.create(
            model=model, messages=MESSAGES + [{"role": "user", "content": "Go on, %d." % i}], max_tokens=500, stream=True)
        next(iter(stream))
        streams.append(stream)
    assert in_flight() >= len(streams), "%d requests in flight while %d streams are open" % (in_flight(), len(streams))
    for stream in streams:
        stream.close()
    limit = time.monotonic() + 15
    while (left := in_flight()) and time.monotonic() < limit:
        time.sleep(0.1)
    assert left == 0, "%d requests are still in flight 15 s after their clients left" % left


def main():
    failed = 0
    print("# openai %s, Python %s" % (openai.__version__, sys.version.split()[0]), flush=True)
    for name, check in [(n, f) for n, f in globals().items() if n.startswith("check_")]:
        try:
            check()
            print("ok " + name[6:], flush=True)
        except Exception as e:  # every check is reported
            failed += 1
            print("FAIL %s: %s: %s" % (name[6:], type(e).__name__, str(e).replace("\n", " ")), flush=True)
            traceback.print_exc()
    sys.exit(failed > 0)


main()
