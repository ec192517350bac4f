"""Builds and searches the same vectors with hnswlib, faiss and usearch on one thread, in seconds of processor time, to be run in turn with
`cargo bench -p storage-engine --bench vector`: python3 peers.py FOLDER [library ...]"""
import sys, time
import numpy as np

folder, only = sys.argv[1], sys.argv[2:]
load = lambda name: np.load(f"{folder}/{name}.i8.npy").astype(np.float32)
vectors, queries = load("vectors"), load("queries")
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
queries /= np.linalg.norm(queries, axis=1, keepdims=True)
K, WIDTHS = 10, [24, 40, 64, 100, 160]
truth = np.argpartition(-(queries @ vectors.T), K, axis=1)[:, :K]


def report(name, width, search):
    for _ in range(2):
        began = time.thread_time()
        found = [search(query) for query in queries]
        seconds = time.thread_time() - began
    recall = np.mean([len(set(map(int, f)) & set(map(int, t))) / K for f, t in zip(found, truth)])
    print(f"{name:24} width {width:4}  recall {recall:.4f}  {len(queries) / seconds:7.0f} q/s", flush=True)


def built(name, began):
    seconds = time.thread_time() - began
    print(f"{name} built in {seconds:.1f} s, {len(vectors) / seconds:.0f} vectors/s", flush=True)


def hnswlib():
    import hnswlib
    began = time.thread_time()
    index = hnswlib.Index("cosine", vectors.shape[1])
    index.init_index(len(vectors), M=16, ef_construction=125, random_seed=1)
    index.set_num_threads(1)
    index.add_items(vectors, num_threads=1)
    built("hnswlib", began)
    for width in WIDTHS:
        index.set_ef(width)
        report("hnswlib", width, lambda q: index.knn_query(q, K, num_threads=1)[0][0])


def faiss():
    import faiss
    faiss.omp_set_num_threads(1)
    began = time.thread_time()
    index = faiss.IndexHNSWFlat(vectors.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 125
    index.add(vectors)
    built("faiss", began)
    for width in WIDTHS:
        index.hnsw.efSearch = width
        report("faiss", width, lambda q: index.search(q[None], K)[1][0])


def usearch():
    from usearch.index import Index
    for dtype in ["f32", "i8"]:
        began = time.thread_time()
        index = Index(ndim=vectors.shape[1], metric="cos", dtype=dtype, connectivity=16, expansion_add=125)
        index.add(np.arange(len(vectors)), vectors, threads=1)
        built(f"usearch {dtype}", began)
        for width in WIDTHS:
            index.expansion_search = width
            report(f"usearch {dtype}", width, lambda q: index.search(q, K, threads=1).keys)


for run in [hnswlib, faiss, usearch]:
    if not only or run.__name__ in only:
        run()
