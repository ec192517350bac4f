"""Drives a server with the official Python client, unchanged, as a user would: python_client.py PATH/TO/skerry

Every step states what it expects; the first that fails ends the run.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import meilisearch
from meilisearch.errors import MeilisearchApiError

MASTER_KEY = "a-master-key-of-the-client-test"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(binary, folder):
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen([binary, "--http-addr", address, "--db-path", os.path.join(folder, "data"),
                                "--master-key", MASTER_KEY], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    client = meilisearch.Client(f"http://{address}", MASTER_KEY)
    for _ in range(500):
        if client.is_healthy():
            return process, client
        assert process.poll() is None, "the server did not start"
        time.sleep(0.02)
    raise AssertionError("the server did not answer")


def documents_and_search(client):
    index = client.index("books")
    books = [{"id": n, "title": t, "year": y, "genre": g} for n, (t, y, g) in enumerate([
        ("The Left Hand of Darkness", 1969, "science fiction"), ("A Wizard of Earthsea", 1968, "fantasy"),
        ("The Dispossessed", 1974, "science fiction"), ("Dune", 1965, "science fiction")])]
    client.wait_for_task(client.create_index("books", {"primaryKey": "id"}).task_uid)
    client.wait_for_task(index.update_settings({"filterableAttributes": ["genre", "year"], "sortableAttributes": ["year"]}).task_uid)
    task = client.wait_for_task(index.add_documents(books).task_uid)
    assert task.status == "succeeded" and task.details["indexedDocuments"] == 4, task
    hits = index.search("darknes")["hits"]
    assert [h["id"] for h in hits] == [0], hits
    hits = index.search("", {"filter": "genre = 'science fiction' AND year > 1966", "sort": ["year:desc"]})["hits"]
    assert [h["title"] for h in hits] == ["The Dispossessed", "The Left Hand of Darkness"], hits
    found = index.search("wizard", {"attributesToHighlight": ["title"]})["hits"][0]["_formatted"]["title"]
    assert found == "A <em>Wizard</em> of Earthsea", found
    assert index.get_document(3).title == "Dune"
    assert index.get_documents({"limit": 2}).total == 4
    client.wait_for_task(index.update_documents([{"id": 3, "year": 1966}]).task_uid)
    assert (index.get_document(3).year, index.get_document(3).title) == (1966, "Dune")
    client.wait_for_task(index.delete_document(1).task_uid)
    assert index.get_stats().number_of_documents == 3
    csv = b"id,title,year:number\n9,Solaris,1961\n"
    client.wait_for_task(index.add_documents_csv(csv).task_uid)
    assert index.get_document(9).year == 1961


def settings(client):
    index = client.index("books")
    client.wait_for_task(index.update_synonyms({"sf": ["science fiction"]}).task_uid)
    assert index.get_synonyms() == {"sf": ["science fiction"]}
    client.wait_for_task(index.update_stop_words(["the", "a"]).task_uid)
    assert index.get_stop_words() == ["a", "the"]
    client.wait_for_task(index.reset_settings().task_uid)
    assert index.get_searchable_attributes() == ["*"]


def keys_and_errors(client):
    key = client.create_key({"description": "books only", "actions": ["search"], "indexes": ["books"], "expiresAt": None})
    limited = meilisearch.Client(client.config.url, key.key)
    assert limited.index("books").search("dune")["hits"]
    for call in (lambda: limited.index("films").search(""), limited.get_indexes):
        try:
            call()
            raise AssertionError("a limited key was let in")
        except MeilisearchApiError as error:
            assert error.code == "invalid_api_key", error
    try:
        client.index("absent").get_document("1")
        raise AssertionError("an absent index answered")
    except MeilisearchApiError as error:
        assert error.code == "index_not_found", error


def tasks(client):
    found = client.get_tasks({"indexUids": ["books"], "types": ["documentAdditionOrUpdate"]})
    assert found.total == 3 and all(task.status == "succeeded" for task in found.results), found
    task = client.wait_for_task(client.index("absent").delete().task_uid)
    assert task.status == "failed" and task.error["code"] == "index_not_found", task


def main():
    with tempfile.TemporaryDirectory() as folder:
        process, client = start(sys.argv[1], folder)
        try:
            steps = [documents_and_search, settings, keys_and_errors, tasks]
            for step in steps:
                step(client)
            print(json.dumps({"client": "python", "version": client.get_version()["pkgVersion"]}))
            print(f"{len(steps)} passed, 0 failed")
        finally:
            process.terminate()
            process.wait(15)


if __name__ == "__main__":
    main()
