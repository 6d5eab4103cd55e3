"""Malformed requests, and a program that sends them; `serving.py` measures what they cost another client.

    python benchmarks/speed/malformed.py PORT POLICY "deep JSON"

It waits for a line of input, sends them, and prints how many were answered with which status.
"""

import asyncio
import collections
import contextlib
import sys
from typing import Any

REPEATS = 300
"""How often a malformed request is sent: the slow ones at once, the short ones every 10 ms, 200 MB once."""


def requests(policy: str) -> dict[str, list[bytes]]:
    """Return malformed requests, each in the parts in which it is sent."""
    path = f"/policies/{policy}/episodes"

    def post(body: bytes, length: Any = None) -> list[bytes]:
        length = len(body) if length is None else length
        return [f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode() + body]

    return {
        "deep JSON": post(b"[" * 50_000),
        "a number of 400 digits": post(b'{"observation": [' + b"9" * 400 + b"]}"),
        "a reward of 400 digits": post(b'{"observation": [0, 0], "reward": ' + b"9" * 400 + b"}"),
        "huge Content-Length": post(b"{}", 10**15),
        "Content-Length of 400 digits": post(b"{}", "9" * 400),
        "negative Content-Length": post(b"{}", -5),
        "no JSON": post(b"observation=1"),
        "no HTTP": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n"],
        "endless headers": [b"GET / HTTP/1.1\r\nhost: x\r\n", *[b"x-y: " + b"a" * 8000 + b"\r\n"] * 40],
        "200 MB body": [post(b"", 200_000_000)[0], *[b"a" * 1_000_000] * 200],
        "200 MB in chunks": [
            f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode(),
            *[b"f4240\r\n" + b"a" * 1_000_000 + b"\r\n"] * 200,
            b"0\r\n\r\n",
        ],
        "slow headers": [b"GET / HTTP/1.1\r\nhost:"],
        "slow body": post(b"{", 100),
    }


async def attack(port: int, policy: str, name: str) -> str:
    """Send malformed requests of one kind; return how many were answered with which status."""
    parts = requests(policy)[name]
    statuses: collections.Counter[str] = collections.Counter()
    if "slow" in name:
        statuses.update(await asyncio.gather(*(send(port, parts) for _ in range(REPEATS))))
    else:
        for _ in range(1 if "200 MB" in name else REPEATS):
            statuses[await send(port, parts)] += 1
            await asyncio.sleep(0.01)
    return ", ".join(f"{status}: {count}" for status, count in statuses.items())


async def send(port: int, parts: list[bytes]) -> str:
    """Send a malformed request; return the status of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def write() -> None:
        with contextlib.suppress(OSError):
            for part in parts:
                writer.write(part)
                await writer.drain()

    writing = asyncio.create_task(write())
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        status = head[9:12].decode()
        await writing
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        status = f"no answer: {type(error).__name__}"
        writing.cancel()
    writer.close()
    return status


if __name__ == "__main__":
    sys.stdin.readline()
    print(asyncio.run(attack(int(sys.argv[1]), *sys.argv[2:])))
