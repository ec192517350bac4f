"""Loads a file of NDJSON through an instance with the official client: load.py URL INDEX FILE"""

import sys
import time

import meilisearch

PIECE_BYTES = 5_000_000
PATIENCE_MS = 600_000


def pieces(path):
    piece, size = [], 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            piece.append(line)
            size += len(line)
            if size > PIECE_BYTES:
                yield "".join(piece)
                piece, size = [], 0
    yield "".join(piece)


def main(url, uid, path):
    client = meilisearch.Client(url, timeout=120)
    index = client.index(uid)
    began = time.monotonic()
    tasks = [index.add_documents_ndjson(piece.encode(), primary_key="id") for piece in pieces(path) if piece]
    for task in tasks:
        done = client.wait_for_task(task.task_uid, timeout_in_ms=PATIENCE_MS, interval_in_ms=50)
        if done.status != "succeeded":
            sys.exit(f"task {task.task_uid}: {done.error}")
    print(f"{len(tasks)} tasks in {time.monotonic() - began:.1f} s", flush=True)


main(*sys.argv[1:])
